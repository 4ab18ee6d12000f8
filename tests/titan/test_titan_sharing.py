"""Which stages of real models share programs, and which never do."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from torchtitan.models.common.rope import CosSinRoPE

from benchmarks import many_layers
from pp_precompile.models import deepseek_v3, llama3
from pp_precompile.stage.portable import register_logical_groups
from pp_precompile.stage.programs import TracedStage
from pp_precompile.titan.offline import offline_job
from pp_precompile.titan.plan import plan
from pp_precompile.titan.stages import parallel_arguments, parallel_stage
from pp_precompile.titan.trainer import PrecompileTrainer

Config = PrecompileTrainer.Config


def _parallel(config: Config, degree: int, **more: Any) -> Config:
    config.compile.precompile = True
    config.parallelism = dataclasses.replace(
        config.parallelism, pipeline_parallel_degree=degree, **more
    )
    return config


def _stage(config: Config, index: int) -> tuple[TracedStage, str]:
    """Trace one stage; also returns the id of the build that it would be part of."""
    with offline_job(config) as (job, model):
        register_logical_groups(job.meshes())
        module = parallel_stage(job, model, index, parallel_arguments(job))
        return job.trace(module, index), job.build_id


def _keys(stage: TracedStage) -> dict[str, str]:
    return {role: program.key for role, program in stage.programs.items()}


def _three_stages(change: Callable[[Config], None] = lambda config: None) -> Config:
    """A model of four layers, of which the second and the third are a stage."""
    config = llama3.llama3_debugmodel_sdpa()
    model = config.model_spec.model
    model.layers = [copy.deepcopy(layer) for layer in model.layers[:4]]
    config.training.seq_len = 64
    change(config)
    split = [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2"],
        ["layers.3", "norm", "lm_head"],
    ]
    return _parallel(config, 3, module_fqns_per_model_part=split)


def _layers(config: Config) -> list[Any]:
    return config.model_spec.model.layers


def _dtype(config: Config) -> None:
    config.training.dtype = "bfloat16"
    config.training.mixed_precision_param = "bfloat16"


def _width(config: Config) -> None:
    network = _layers(config)[2].feed_forward
    network.w1.out_features = network.w3.out_features = network.w2.in_features = 512


def _epsilon(config: Config) -> None:
    _layers(config)[2].ffn_norm.eps = 1e-6


def _length(config: Config) -> None:
    config.training.seq_len = 128


def _rope(config: Config) -> None:
    rope = _layers(config)[2].attention.rope
    real = CosSinRoPE.Config(dim=rope.dim, max_seq_len=rope.max_seq_len, theta=rope.theta)
    _layers(config)[2].attention.rope = real


CHANGES: dict[str, tuple[Callable[[Config], None], set[str]]] = {
    "dtype": (_dtype, set()),
    "width": (_width, set()),
    "sequence length": (_length, set()),
    "rotary embedding": (_rope, set()),
    # The backward takes the norm's scale as the forward has saved it.
    "epsilon of a norm": (_epsilon, {"backward"}),
}
"""Changes of a stage, and the programs that they do not reach."""


@pytest.fixture(scope="module")
def unchanged() -> tuple[dict[str, str], str]:
    stage, build = _stage(_three_stages(), 1)
    return _keys(stage), build


@pytest.mark.parametrize("name", CHANGES)
def test_a_stage_that_differs_shares_no_program_that_the_change_reaches(
    name: str, unchanged: tuple[dict[str, str], str]
) -> None:
    change, untouched = CHANGES[name]
    stage, build = _stage(_three_stages(change), 1)
    keys, before = unchanged
    assert set(_keys(stage)) == set(keys) == {"forward", "backward"}
    assert {role for role, key in _keys(stage).items() if key in keys.values()} == untouched
    assert build != before


def test_what_is_computed_into_a_buffer_makes_another_build_of_the_same_programs(
    unchanged: tuple[dict[str, str], str],
) -> None:
    """The base of rotary embeddings: their table is an input, and each job gives its own."""

    def theta(config: Config) -> None:
        for layer in _layers(config):
            layer.attention.rope.theta *= 2

    stage, build = _stage(_three_stages(theta), 1)
    keys, before = unchanged
    assert _keys(stage) == keys
    assert build != before
    tables = [v.name for v in stage.programs["forward"].inputs if v.kind == "buffer"]
    assert tables == ["layers.1.attention.rope.cache", "layers.2.attention.rope.cache"]


def test_dense_layers_and_experts_share_nothing_and_equal_ones_everything() -> None:
    config = deepseek_v3.deepseek_v3_debugmodel_sdpa()
    model = config.model_spec.model
    dense, experts = model.layers[0], model.layers[1]
    assert dense.moe is None
    assert experts.moe is not None
    kinds = (dense, dense, dense, experts, experts, experts)
    model.layers = [copy.deepcopy(layer) for layer in kinds]
    config.training.seq_len = 64
    split = [[f"layers.{index}"] for index in range(6)]
    split[0].insert(0, "tok_embeddings")
    split[-1] += ["norm", "lm_head"]
    planned = plan(_parallel(config, 6, module_fqns_per_model_part=split))
    keys = [{item.key for item in stage.programs} for stage in planned.stages]
    assert keys[1] == keys[2]
    assert keys[3] == keys[4]
    distinct = [keys[index] for index in (0, 1, 3, 5)]
    assert sum(map(len, distinct)) == len(set().union(*distinct))


def test_more_stages_of_the_same_layers_have_as_many_distinct_programs() -> None:
    planned = {degree: plan(_parallel(many_layers.llama3_8_layers(), degree)) for degree in (4, 8)}
    counts = {degree: (len(p.programs), len(p.keys())) for degree, p in planned.items()}
    # Each stage has two programs, the last one its loss besides.
    assert counts == {4: (9, 7), 8: (17, 7)}
    for found in planned.values():
        _, *middle, _ = [[item.key for item in stage.programs] for stage in found.stages]
        assert all(keys == middle[0] for keys in middle)
        names = {module for stage in found.stages for module in stage.modules}
        assert {f"layers.{i}" for i in range(8)} < names
