"""What torchtitan's GraphPP, or its programs from a store, cannot do: refused with the reason."""

from collections.abc import Iterator
from typing import Any

from torchtitan.components.loss import ChunkedLossWrapper

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.schedule import ScheduleTable, parse_actions
from pp_precompile.graph.overlap import overlapped
from pp_precompile.titan import private_graph_pp

_SCHEDULES = "Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble or DualPipeV"

_INSTEAD = "or --compile.precompile_engine stage"


def unsupported(config: Any) -> Iterator[tuple[str, object, str]]:
    """Yield field, value, and what is expected, for all that a configuration alone tells.

    Raises:
        PrecompileError: PPC006 for a torch that GraphPP does not run on.
    """
    compile_config = config.compile
    if compile_config.mode != "aot_fx_trace":
        yield "compile.mode", compile_config.mode, "aot_fx_trace, which GraphPP traces with"
    if not compile_config.enable:
        yield "compile.enable", False, "True: GraphPP's passes are torchtitan's compilation"
    if isinstance(config.loss, ChunkedLossWrapper.Config):
        expected = f"a loss that is computed at once, {_INSTEAD}"
        yield "loss with GraphPP", type(config.loss).__qualname__, expected
    if config.parallelism.pipeline_parallel_degree > 1:
        yield from _of_pipelines(config.parallelism)
    else:
        yield from _of_steps(compile_config)


def _of_pipelines(parallelism: Any) -> Iterator[tuple[str, object, str]]:
    private_graph_pp.check_version()
    schedule = parallelism.pipeline_parallel_schedule
    if not private_graph_pp.runs(schedule):
        expected = (
            f"a schedule that torch unrolls into actions, as GraphPP needs it: {_SCHEDULES}; "
            f"{_INSTEAD}"
        )
        yield "parallelism.pipeline_parallel_schedule", schedule, expected
    if parallelism.fsdp_reshard_after_forward == "always":
        expected = f"default or never, since GraphPP gathers once a step, {_INSTEAD}"
        yield "parallelism.fsdp_reshard_after_forward", "always", expected


def _of_steps(compile_config: Any) -> Iterator[tuple[str, object, str]]:
    """What changes a whole step outside of its graph, or by passes that are not the default."""
    if compile_config.pass_pipeline != "default":
        yield "compile.pass_pipeline", compile_config.pass_pipeline, f"default, {_INSTEAD}"
    if compile_config.passes:
        yield "compile.passes", compile_config.passes, f"none, {_INSTEAD}"
    if compile_config.ep_overlap.enabled:
        yield "compile.ep_overlap.enabled", True, f"False, {_INSTEAD}"


def check_mesh(mesh: MeshSpec) -> None:
    """Refuse parallelism inside a stage.

    GraphPP of torchtitan 0.3.0 fails on it with torch 2.14 (an ``IndexError`` where it puts the
    inputs of a forward together), on every device.

    Raises:
        UsageError: PPC002 naming the first dimension.
    """
    for name, size in zip(mesh.dims, mesh.sizes, strict=True):
        if name != "pp" and size > 1:
            raise UsageError(
                "PPC002",
                f"GraphPP's programs do not support the mesh dimension {name} = {size}",
                expected="1: torchtitan 0.3.0's GraphPP fails on sharded and replicated "
                "parameters with torch 2.14",
                found=str(mesh),
                hint="use --compile.precompile_engine stage",
            )


def check_step_mesh(mesh: MeshSpec) -> None:
    """Refuse parallelism inside a step other than data parallelism.

    Raises:
        UsageError: PPC002 naming the first dimension.
    """
    sizes = dict(zip(mesh.dims, mesh.sizes, strict=True)) | {"ep": mesh.experts}
    for name, size in sizes.items():
        if name not in ("dp_replicate", "dp_shard") and size > 1:
            raise UsageError(
                "PPC002",
                f"a step graph from the store does not support the mesh dimension {name} = {size}",
                expected="1, with data parallelism alone",
                found=str(mesh),
                hint="use --compile.precompile_engine stage",
            )


def check_schedule(schedule: ScheduleTable) -> None:
    """Refuse overlaps that GraphPP, or this package with it, cannot run.

    Raises:
        UsageError: PPC002.
    """
    for texts in schedule.actions:
        for text in texts:
            actions = parse_actions(text)
            if len(actions) == 2 and any(action.kind == "I" for action in actions):
                raise _overlap(text, "a forward with a whole backward (B)")
    for stage, backwards in overlapped(schedule).items():
        if len(backwards) > 1:
            found = f"forwards of stage {stage} with backwards of stages {backwards}"
            raise _overlap(found, "each stage's forwards with backwards of one stage")


def _overlap(found: str, expected: str) -> UsageError:
    return UsageError(
        "PPC002",
        "GraphPP's programs do not support this overlap",
        expected=expected,
        found=found,
        hint="change the schedule, or use --compile.precompile_engine stage",
    )
