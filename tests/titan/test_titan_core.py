"""The core front end's configurations, jobs and refusals."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from torchtitan.config import CompileConfig
from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC
from torchtitan.models.common.attention import FlexAttention
from torchtitan.models.deepseek_v3 import config_registry as deepseek_v3_registry
from torchtitan.models.llama3 import config_registry as llama3_registry
from torchtitan.models.qwen3 import config_registry as qwen3_registry

from pp_precompile.contract.errors import UsageError
from pp_precompile.graph.plan import BuildPlan
from pp_precompile.models import deepseek_v3, llama3, qwen3
from pp_precompile.stage.programs import TracedStage
from pp_precompile.titan.core_trainer import CoreTrainer
from pp_precompile.titan.offline import offline_job
from pp_precompile.titan.plan import plan
from pp_precompile.titan.request import evaluate
from pp_precompile.titan.stages import parallel_arguments, parallel_stage
from pp_precompile.titan.supported import check_supported

FAMILIES = {
    "llama3": (llama3, llama3_registry, {"llama3_debugmodel", "llama3_8b", "llama3_70b"}),
    "deepseek_v3": (
        deepseek_v3,
        deepseek_v3_registry,
        {"deepseek_v3_debugmodel", "deepseek_v3_16b"},
    ),
    "qwen3": (qwen3, qwen3_registry, {"qwen3_debugmodel", "qwen3_moe_debug", "qwen3_14b"}),
}

Config = CoreTrainer.Config
Change = Callable[[Config], None]


def _config(**parallelism: Any) -> Config:
    config: Config = llama3.core_llama3_debugmodel_sdpa()
    config.compile.precompile = True
    config.parallelism = dataclasses.replace(config.parallelism, **parallelism)
    return config


def _small(**parallelism: Any) -> Config:
    config = _config(**parallelism)
    config.model_spec.model.layers = [
        copy.deepcopy(layer) for layer in config.model_spec.model.layers[:3]
    ]
    config.training.seq_len = 64
    return config


@pytest.mark.parametrize("name", FAMILIES)
def test_names_are_torchtitans_behind_core(name: str) -> None:
    ours, theirs, sdpa = FAMILIES[name]
    names = {n for n in vars(ours) if n.startswith("core_")}
    known = {f"core_{n}" for n in vars(theirs) if n.startswith((f"{name}_", "sft_"))}
    assert names - known == {f"core_{n}_sdpa" for n in sdpa}
    assert {f"core_{n}" for n in sdpa} <= names


def test_a_configuration_is_torchtitans_with_our_flags() -> None:
    config, theirs = llama3.core_llama3_8b(), llama3_registry.llama3_8b()
    assert isinstance(config, CoreTrainer.Config)
    assert isinstance(config.compile, CompileConfig)
    assert (config.compile.precompile, config.compile.precompile_policy) == (False, "auto")
    assert (config.training, config.loss) == (theirs.training, theirs.loss)
    assert config.model_spec.parallelize_fn is theirs.model_spec.parallelize_fn
    assert any(config.model_spec.model.traverse(FlexAttention.Config))


def test_a_debug_variant_is_small_and_brings_its_data() -> None:
    for module, name in ((llama3, "llama3_debugmodel"), (qwen3, "qwen3_moe_debug")):
        config = getattr(module, f"core_{name}_sdpa")()
        assert (config.training.seq_len, config.training.local_batch_size) == (256, 8)
        assert config.dataloader.dataset == "pp_precompile_debug"
        assert not any(config.model_spec.model.traverse(FlexAttention.Config))


def _layers(config: Config) -> list[Any]:
    layers: list[Any] = config.model_spec.model.layers
    return layers


def _trace(config: Config, stage: int = 0) -> tuple[TracedStage, dict[str, str], str]:
    with offline_job(config) as (job, model):
        module = parallel_stage(job, model, stage, parallel_arguments(job))
        return job.trace(module, stage), dict(job.factors), job.build_id


def _keys(block: TracedStage) -> dict[str, str]:
    return {role: program.key for role, program in block.programs.items()}


@pytest.fixture(scope="module")
def unchanged() -> TracedStage:
    return _trace(_small())[0]


def test_equal_layers_are_traced_once(unchanged: TracedStage) -> None:
    first, *others = unchanged.blocks or ()
    assert len(others) == 2
    assert all(block.programs is first.programs for block in others)
    assert [block.source.modules for block in unchanged.blocks or ()] == [
        ("layers.0",),
        ("layers.1",),
        ("layers.2",),
    ]
    assert len(unchanged.keyed) == 2


def _dtype(config: Config) -> None:
    config.training.mixed_precision_param = "bfloat16"


def _width(config: Config) -> None:
    network = _layers(config)[1].feed_forward
    network.w1.out_features = network.w3.out_features = network.w2.in_features = 512


def _epsilon(config: Config) -> None:
    _layers(config)[1].ffn_norm.eps = 1e-6


def _heads(config: Config) -> None:
    _layers(config)[1].attention.n_heads //= 2


CHANGES: dict[str, tuple[Change, set[str]]] = {
    "width": (_width, set()),
    # The backward takes the norm's scale as the forward has saved it.
    "epsilon of a norm": (_epsilon, {"backward"}),
}
"""Changes of the second layer, and the programs that they do not reach."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_layer_that_differs_has_programs_of_its_own(name: str, unchanged: TracedStage) -> None:
    change, untouched = CHANGES[name]
    config = _small()
    change(config)
    one, other, third = _trace(config)[0].blocks or ()
    before = _keys((unchanged.blocks or ())[0])
    assert _keys(one) == _keys(third) == before
    assert {role for role, key in _keys(other).items() if key == before[role]} == untouched


def test_programs_compute_in_the_dtype_of_mixed_precision(unchanged: TracedStage) -> None:
    config = _small()
    _dtype(config)
    stage, _, _ = _trace(config)
    [block, *_] = stage.blocks or ()
    assert {item.tensor.dtype for item in block.parameters} == {"bfloat16"}
    assert {item.tensor.dtype for item in block.source.arguments} == {"bfloat16"}
    # FSDP2 casts no buffers.
    assert {item.tensor.dtype for item in block.buffers} & {"float32", "complex64"}
    assert not {*_keys(block).values()} & {key for _, key in _named(unchanged)}


def _named(stage: TracedStage) -> list[tuple[str, str]]:
    return [(name, program.key) for name, program in stage.keyed]


def test_shards_and_replicas_make_other_builds_of_the_same_programs(
    unchanged: TracedStage,
) -> None:
    factors = [
        (1, 4),
        (2, 2),
    ]
    builds = set()
    for replicas, shards in factors:
        config = _small(data_parallel_replicate_degree=replicas, data_parallel_shard_degree=shards)
        stage, _, build = _trace(config)
        assert _named(stage) == _named(unchanged)
        builds.add(build)
    assert len(builds) == 2


def test_the_key_names_the_front_end_and_leaves_the_loss_out() -> None:
    request = evaluate(_small())
    assert request.factors["front_end"] == "blocks"
    assert not [n for n in request.factors if n.startswith(("loss", "inputs.loss"))]


def test_a_build_is_planned_with_one_program_for_all_layers() -> None:
    config = _config(pipeline_parallel_degree=4, pipeline_parallel_schedule="Interleaved1F1B")
    planned: BuildPlan = plan(config)
    assert len(planned.stages) == 8
    assert len(planned.keys()) == 2
    assert planned.stages[0].programs == planned.stages[-1].programs == ()
    assert planned.stages[0].modules == ("tok_embeddings",)


def _check(change: Change) -> UsageError:
    config = _config()
    check_supported(config)
    change(config)
    with pytest.raises(UsageError) as raised:
        check_supported(config)
    assert raised.value.code == "PPC002"
    return raised.value


def _parallel(**degrees: Any) -> Change:
    def change(config: Config) -> None:
        config.parallelism = dataclasses.replace(config.parallelism, **degrees)

    return change


def _set(section: str, name: str, value: Any) -> Change:
    return lambda config: setattr(getattr(config, section), name, value)


REFUSED: dict[str, tuple[Change, str]] = {
    "tensor parallelism": (_parallel(tensor_parallel_degree=2), "tensor_parallel_degree"),
    "expert parallelism": (_parallel(expert_parallel_degree=2), "expert_parallel_degree"),
    "context parallelism": (_parallel(context_parallel_degree=2), "context_parallel_degree"),
    "full DTensor": (_parallel(spmd_backend="full_dtensor"), "spmd_backend"),
    "types of SPMD": (_set("debug", "spmd_typechecking", True), "spmd_typechecking"),
    "offloading": (_set("training", "enable_cpu_offload", True), "enable_cpu_offload"),
    "another mode of communication": (_set("comm", "mode", "fake_backend"), "comm.mode"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_by_name(name: str) -> None:
    change, field = REFUSED[name]
    assert field in _check(change).message


def test_other_attention_is_refused() -> None:
    config = llama3.core_llama3_debugmodel()
    with pytest.raises(UsageError, match="FlexAttention"):
        check_supported(config)


@pytest.mark.parametrize("schedule", ["InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"])
def test_a_schedule_that_splits_backwards_is_refused(schedule: str) -> None:
    config = _config(pipeline_parallel_degree=2, pipeline_parallel_schedule=schedule)
    with pytest.raises(UsageError, match=schedule) as raised, offline_job(config):
        pass
    assert raised.value.code == "PPC002"


def test_checkpointing_is_the_programs_and_saves_less() -> None:
    saved = {}
    for name, chosen in {
        "none": None,
        "selective": SelectiveAC.Config(),
        "full": FullAC.Config(),
        "budget": MemoryBudgetAC.Config(memory_budget=0.0),
    }.items():
        config = _small()
        config.compile.enable = True
        config.activation_checkpoint = chosen
        planned = plan(config)
        saved[name] = planned.stages[0].saved_bytes
    hidden = 8 * 64 * config.model_spec.model.dim * 4
    # All that a layer keeps is its input, and positions.
    assert saved["full"] < 3 * (hidden + 8 * 64 * 8 + 1)
    assert saved["full"] <= saved["budget"] < saved["selective"] < saved["none"]
