"""Which activations a stage saves, by what torchtitan's two settings say."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.program import BlobRef, ProgramEntry
from pp_precompile.contract.stage import StageRecord
from pp_precompile.models import llama3
from pp_precompile.stage.programs import TracedStage
from pp_precompile.titan.offline import offline_job
from pp_precompile.titan.stages import parallel_arguments, parallel_stage
from pp_precompile.titan.supported import check_supported
from pp_precompile.titan.trainer import PrecompileTrainer

MIDDLE = 1
HIDDEN = 256 * 256 * 4
"""Bytes of one activation at a block's boundary: 256 tokens, 256 float32 each."""

MODES: dict[str, tuple[str, Any]] = {
    "none": ("default", None),
    "selective": ("default", SelectiveAC.Config()),
    "eager": ("eager", SelectiveAC.Config()),
    "full": ("default", FullAC.Config()),
    "full by policy": ("full", None),
    "budget": ("default", MemoryBudgetAC.Config(memory_budget=0.5)),
    "full by policy, not by budget": ("full", MemoryBudgetAC.Config(memory_budget=1.0)),
}
"""``compile.memory_policy`` and ``activation_checkpoint``."""


def _config(policy: str, chosen: Any) -> PrecompileTrainer.Config:
    config = llama3.llama3_debugmodel_sdpa()
    config.compile.precompile = True
    config.compile.memory_policy = policy  # type: ignore[assignment]
    config.activation_checkpoint = chosen
    config.parallelism = dataclasses.replace(config.parallelism, pipeline_parallel_degree=4)
    return config


def _trace(names: Iterable[str], shards: int = 1) -> dict[str, TracedStage]:
    """Trace the second of four stages, which has two layers, under each mode."""
    base = _config("default", None)
    base.parallelism.data_parallel_shard_degree = shards
    with offline_job(base) as (job, model):
        module = parallel_stage(job, model, MIDDLE, parallel_arguments(job))
        return {
            name: dataclasses.replace(job, config=_config(*MODES[name])).trace(module, MIDDLE)
            for name in names
        }


@pytest.fixture(scope="module")
def stages() -> dict[str, TracedStage]:
    """The second stage under every mode."""
    return _trace(MODES)


def _record(stage: TracedStage) -> StageRecord:
    """Return the stage's record, as if its programs had been compiled."""
    blob = BlobRef(digest=digest_bytes(b""), size=1)
    keys = {program.key for program in stage.programs.values()}
    return stage.record({key: ProgramEntry(key=key, blob=blob, kernels=0) for key in keys})


def _operations(stage: TracedStage, role: str, name: str) -> int:
    graph = stage.programs[role].graph.graph  # type: ignore[index]
    return sum(name in str(node.target) for node in graph.nodes if node.op == "call_function")


def test_each_mode_saves_less_than_the_one_before(stages: dict[str, TracedStage]) -> None:
    saved = {name: _record(stage).saved_bytes for name, stage in stages.items()}
    print("saved bytes:", saved)
    assert saved["full"] < saved["eager"] < saved["selective"] < saved["none"]
    # The partitioner, which keeps to the budget, counts values in two shapes twice.
    twice = [
        value.tensor.nbytes
        for value in _record(stages["none"]).programs["forward"].outputs
        if value.tensor is not None and (value.alias or "").startswith("saved:")
    ]
    assert twice == [HIDDEN, HIDDEN]
    assert saved["full"] < saved["budget"] <= (saved["none"] + sum(twice)) // 2


def test_full_saves_inputs_of_blocks_and_nothing_else(stages: dict[str, TracedStage]) -> None:
    record = _record(stages["full"])
    kept = [v for v in record.programs["forward"].outputs if v.kind == "saved"]
    # The first block's input is the stage's own, the second's is the first one's output.
    assert record.saved_bytes == HIDDEN
    aliases = [v.alias for v in kept if v.alias and not v.alias.startswith("parameter:")]
    assert sorted(a for a in aliases if not a.startswith("buffer:")) == [
        "argument:0",
        "keyword:positions",
    ]
    assert _operations(stages["full"], "backward", "flash_attention_for_cpu.default") == 2


def test_selective_computes_no_matrix_product_again_and_eager_every_second(
    stages: dict[str, TracedStage],
) -> None:
    """A block has five products and the backward two for each; full leaves out what none needs."""
    products = {name: _operations(stages[name], "backward", "aten.mm.") for name in stages}
    assert products["none"] == products["selective"] == 2 * 2 * 5
    assert products["eager"] == 2 * (2 * 5 + 2)
    assert products["full"] == 2 * (2 * 5 + 4)


@pytest.mark.parametrize("name", ["full by policy", "full by policy, not by budget"])
def test_the_memory_policy_decides_if_it_was_changed(
    name: str, stages: dict[str, TracedStage]
) -> None:
    keys = {role: program.key for role, program in stages["full"].programs.items()}
    assert {role: program.key for role, program in stages[name].programs.items()} == keys


def test_gathered_parameters_are_not_saved(stages: dict[str, TracedStage]) -> None:
    sharded = _trace(["selective", "full", "budget"], shards=2)
    assert set(sharded["full"].programs) >= {"unshard", "reduce_grad"}
    for name, stage in sharded.items():
        assert _record(stage).saved_bytes == _record(stages[name]).saved_bytes


def test_all_modes_that_differ_have_builds_of_their_own() -> None:
    ids = set()
    for mode in [*MODES.values(), ("default", MemoryBudgetAC.Config(memory_budget=0.4))]:
        with offline_job(_config(*mode)) as (job, _):
            ids.add(job.build_id)
    assert len(ids) == len(MODES) + 1


class _OwnAC(SelectiveAC):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(SelectiveAC.Config):
        pass


REFUSED: dict[str, Callable[[Any], None]] = {
    "compile.memory_policy": lambda c: setattr(c.compile, "memory_policy", "sac_and_offload"),
    "_OwnAC": lambda c: setattr(c, "activation_checkpoint", _OwnAC.Config()),
    "activation_checkpoint.memory_budget": lambda c: setattr(
        c, "activation_checkpoint", MemoryBudgetAC.Config(memory_budget=1.5)
    ),
    "force_recompute_mm_shapes_by_fqns": lambda c: setattr(
        c,
        "activation_checkpoint",
        SelectiveAC.Config(force_recompute_mm_shapes_by_fqns=["feed_forward.w1"]),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_programs_cannot_do_is_refused_by_name(name: str) -> None:
    config = _config("default", None)
    check_supported(config)
    REFUSED[name](config)
    with pytest.raises(UsageError) as raised:
        check_supported(config)
    assert raised.value.code == "PPC002"
    assert name in str(raised.value)
