"""The registries of all model families: torchtitan's names and sizes, and small debug models."""

import importlib
from types import ModuleType
from typing import Any

import pytest
import torch
from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention

from pp_precompile.contract.factors import flatten
from pp_precompile.models import deepseek_v3, llama3, qwen3
from pp_precompile.titan.exclusions import excluded
from pp_precompile.titan.trainer import PrecompileTrainer

FAMILIES = (deepseek_v3, llama3, qwen3)
_THEIRS = "torchtitan.experiments.graph_trainer"

SDPA = {
    deepseek_v3: {"deepseek_v3_debugmodel", "deepseek_v3_16b"},
    llama3: {"llama3_debugmodel", "llama3_8b", "llama3_70b"},
    qwen3: {"qwen3_debugmodel", "qwen3_debugmodel_moe", "qwen3_14b"},
}
"""What has a variant with scaled dot product attention, by family."""

VARIANTS = [(family, name) for family, names in SDPA.items() for name in sorted(names)]
DEBUG = [(family, name) for family, name in VARIANTS if "debugmodel" in name]
REAL = [(family, name) for family, name in VARIANTS if "debugmodel" not in name]


def _name(value: Any) -> str | None:
    """Return a module's short name; other values name themselves."""
    return value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else None


def _theirs(family: ModuleType) -> dict[str, Any]:
    """Return graph_trainer's config functions of a family by their names here."""
    module = importlib.import_module(f"{_THEIRS}.{_name(family)}.config_registry")
    prefix = "graph_trainer_"
    names = [name for name in dir(module) if name.startswith(prefix)]
    return {name.removeprefix(prefix): getattr(module, name) for name in names}


def _keyed(config: Any) -> dict[str, str]:
    """Return a model's configuration as text: initializers that do the same need not be equal."""
    return flatten(config.model_spec.model, "model", excluded=excluded)


def _variant(family: ModuleType, name: str) -> Any:
    return getattr(family, f"{name}_sdpa")()


@pytest.mark.parametrize("family", FAMILIES, ids=_name)
def test_names_are_torchtitans(family: ModuleType) -> None:
    theirs = _theirs(family)
    ours = {name for name in dir(family) if name.startswith(f"{_name(family)}_")}
    assert theirs.keys() <= ours
    assert ours - theirs.keys() <= {f"{name}_sdpa" for name in SDPA[family]}
    assert {f"{name}_sdpa" for name in SDPA[family]} <= ours


@pytest.mark.parametrize("family", FAMILIES, ids=_name)
def test_a_configuration_is_torchtitans_with_our_flags(family: ModuleType) -> None:
    name = f"{_name(family)}_debugmodel"
    config, theirs = getattr(family, name)(), _theirs(family)[name]()
    assert isinstance(config, PrecompileTrainer.Config)
    assert (config.compile.precompile, config.compile.precompile_policy) == (False, "auto")
    assert config.parallelism.pipeline_parallel_schedule == "1F1B"
    assert (config.model_spec.name, _keyed(config)) == (theirs.model_spec.name, _keyed(theirs))
    assert (config.training, config.loss) == (theirs.training, theirs.loss)
    assert any(config.model_spec.model.traverse(FlexAttention.Config))


@pytest.mark.parametrize(("family", "name"), VARIANTS, ids=_name)
def test_a_variant_attends_by_scaled_dot_products_only(family: ModuleType, name: str) -> None:
    config = _variant(family, name)
    assert isinstance(config, PrecompileTrainer.Config)
    model = config.model_spec.model
    assert not any(model.traverse(FlexAttention.Config))
    found = list(model.traverse(ScaledDotProductAttention.Config))
    assert len(found) == len(model.layers)


@pytest.mark.parametrize(("family", "name"), DEBUG, ids=_name)
def test_a_debug_variant_is_small_and_brings_its_data(family: ModuleType, name: str) -> None:
    config = _variant(family, name)
    training = config.training
    assert (training.seq_len, training.local_batch_size, training.steps) == (256, 8, 3)
    assert training.mixed_precision_param == "float32"
    assert config.dataloader.dataset == "pp_precompile_debug"
    assert not config.validator.enable
    assert not config.checkpoint.enable
    with torch.device("meta"):
        model = config.model_spec.model.build()
    assert sum(p.numel() for p in model.parameters()) < 100e6


@pytest.mark.parametrize(("family", "name"), DEBUG, ids=_name)
def test_a_debug_variant_has_an_embedding_of_its_own_that_is_initialized(
    family: ModuleType, name: str
) -> None:
    config = _variant(family, name).model_spec.model
    assert not config.enable_weight_tying
    with torch.device("meta"):
        model = config.build()
    assert model.tok_embeddings.weight is not model.lm_head.weight
    weight = torch.zeros(8, 16)
    config.tok_embeddings.param_init["weight"](weight)
    assert weight.std() > 0.01


def test_an_embedding_that_was_tied_is_untied_and_initialized() -> None:
    """The qwen3 debug model is one whose embedding torchtitan ties to the head."""
    assert qwen3.qwen3_debugmodel().model_spec.model.enable_weight_tying
    assert not qwen3.qwen3_debugmodel_sdpa().model_spec.model.enable_weight_tying


@pytest.mark.parametrize(("family", "name"), REAL, ids=_name)
def test_a_real_size_keeps_torchtitans_training(family: ModuleType, name: str) -> None:
    config, theirs = _variant(family, name), _theirs(family)[name]()
    assert config.training == theirs.training
    assert config.dataloader == theirs.dataloader
    assert config.loss == theirs.loss
    assert config.hf_assets_path == theirs.hf_assets_path
    model, other = config.model_spec.model, theirs.model_spec.model
    assert len(model.layers) == len(other.layers)
    assert (model.dim, model.vocab_size) == (other.dim, other.vocab_size)
