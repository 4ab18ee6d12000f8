"""The front ends whose starts are measured: how each is told to precompile, and to run eagerly."""

from dataclasses import dataclass

_LLAMA3 = "pp_precompile.models.llama3"

GRAPH_PP_ARGUMENTS = (
    *("--compile.inductor_compilation", "full"),
    # Orders gathers of sharded parameters, of which there are none here; it asks Triton for the
    # memory bandwidth of a GPU, and fails without one.
    *("--compile.disable_passes", "joint_transformer_block_bucketing_reordering_pass"),
    # The first step compiles, and the other ranks wait for it.
    *("--comm.init_timeout_seconds", "900"),
)
"""What GraphPP is given beside the job's arguments: graphs compiled whole, as ours are."""


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """One way into the store.

    ``module`` and ``config`` name the job that is measured if no other is asked for, ``program``
    is the module that every rank runs. ``builds`` says whether ``pp-precompile build`` makes its
    builds; where it does not, a first start of the job fills the store.
    """

    name: str
    module: str
    config: str
    precompile: tuple[str, ...] = ("--compile.precompile",)
    eager: tuple[str, ...] = ("--compile.mode", "None", "--compile.no-enable")
    program: str = "benchmarks.recorded_train"
    builds: bool = True


STAGE = FrontEnd(name="stage", module=_LLAMA3, config="llama3_debugmodel_sdpa")
"""Whole pipeline stages of graph_trainer's models."""

BLOCK = FrontEnd(
    name="block",
    module=_LLAMA3,
    config="core_llama3_debugmodel_sdpa",
    eager=("--compile.no-enable",),
)
"""Blocks of torchtitan's core models, under FSDP2."""

GRAPH_PP_ENGINE = FrontEnd(
    name="graph_pp",
    module=_LLAMA3,
    config="llama3_debugmodel_sdpa",
    precompile=(
        "--compile.precompile",
        "--compile.precompile_engine",
        "graph_pp",
        *GRAPH_PP_ARGUMENTS,
    ),
    builds=False,
)
"""torchtitan's GraphPP, with its graphs from the store."""

PIPE = FrontEnd(
    name="pipe",
    module="benchmarks.pipe_model",
    config="decoder",
    eager=(),
    program="benchmarks.recorded_pipe",
    builds=False,
)
"""A model cut by ``torch.distributed.pipelining``, without torchtitan."""

FRONT_ENDS: dict[str, FrontEnd] = {
    front_end.name: front_end for front_end in (STAGE, BLOCK, GRAPH_PP_ENGINE, PIPE)
}
"""All of them by name."""
