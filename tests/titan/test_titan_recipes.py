"""Every recipe of configs/ is one that torchtitan takes, and that a build can be planned for."""

import math

import pytest

from pp_precompile.titan.plan import plan
from pp_precompile.titan.supported import check_supported
from tests.titan.recipes import FILES, ROWS, cut_down, read


def test_the_readme_lists_every_file() -> None:
    assert sorted(ROWS) == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_is_what_the_readme_says(name: str) -> None:
    config = read(name)
    check_supported(config)
    model, ranks, mesh, _ = ROWS[name]
    assert model.split()[1] == config.model_spec.flavor
    degrees = {
        "PP": config.parallelism.pipeline_parallel_degree,
        "FSDP": max(config.parallelism.data_parallel_shard_degree, 1),
        "TP": config.parallelism.tensor_parallel_degree,
    }
    parts = [f"{dim}{degree}" for dim, degree in degrees.items() if degree > 1 or dim == "PP"]
    if config.parallelism.expert_parallel_degree > 1:
        parts.append(f"EP{config.parallelism.expert_parallel_degree}")
    assert mesh == " × ".join(parts)
    assert int(ranks) == math.prod(degrees.values())


@pytest.mark.parametrize("name", FILES)
def test_a_build_can_be_planned(name: str) -> None:
    config = cut_down(read(name))
    planned = plan(config)
    assert planned.ranks == int(ROWS[name][1])
    assert len(planned.stages) == config.parallelism.pipeline_parallel_degree
    assert planned.microbatches >= len(planned.stages)
    for stage, following in zip(planned.stages, planned.stages[1:], strict=False):
        assert stage.outputs[0].shape == following.arguments[0].tensor.shape
    of_last = {item.role for item in planned.stages[-1].programs}
    assert "loss" in of_last or name.startswith("core_")
    assert of_last
