"""Turn torchtitan's graph_trainer model configurations into ours, generically.

A model family is a module that calls :func:`registry` on graph_trainer's config registry; see
``pp_precompile.models.llama3``.
"""

from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any

from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.config_utils import decoder_vocab_size

from pp_precompile.models.debug_data import TOKENIZER_DIR, register_dataset
from pp_precompile.titan.config import with_precompile
from pp_precompile.titan.small import shrink
from pp_precompile.titan.trainer import PrecompileTrainer

ConfigFunction = Callable[[], PrecompileTrainer.Config]

_PREFIX = "graph_trainer_"


def registry(module: ModuleType, *, sdpa: tuple[str, ...] = ()) -> dict[str, ConfigFunction]:
    """Return a config function for every one of graph_trainer's in ``module``.

    They keep torchtitan's names: ``graph_trainer_llama3_8b`` becomes ``llama3_8b``. ``sdpa`` names
    those, as they are called here, that also get a variant ``<name>_sdpa`` with scaled dot product
    attention. Debug models with it become small enough for a CPU and bring their own data.
    """
    functions: dict[str, ConfigFunction] = {}
    for name in dir(module):
        if name.startswith(_PREFIX):
            short = name.removeprefix(_PREFIX)
            functions[short] = _function(short, getattr(module, name))
    for name in sdpa:
        functions[f"{name}_sdpa"] = _function(f"{name}_sdpa", getattr(module, _PREFIX + name))
    return functions


def _function(name: str, base: Callable[[], Any]) -> ConfigFunction:
    def config() -> PrecompileTrainer.Config:
        converted = to_precompile_config(base())
        if not name.endswith("_sdpa"):
            return converted
        use_sdpa(converted.model_spec.model)
        return small(converted) if "debugmodel" in name else converted

    config.__name__ = config.__qualname__ = name
    config.__doc__ = f"torchtitan's {base.__name__} with the flags of pp_precompile."
    return config


def to_precompile_config(config: Any) -> PrecompileTrainer.Config:
    """Return graph_trainer's ``config`` as a configuration of :class:`PrecompileTrainer`."""
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    values["compile"] = with_precompile(config.compile)
    # Schedules that split the backward are not the default here as they are in debug configs.
    values["parallelism"].pipeline_parallel_schedule = "1F1B"
    return PrecompileTrainer.Config(**values)


def small(config: PrecompileTrainer.Config) -> PrecompileTrainer.Config:
    """Make a debug configuration train in seconds a step on one CPU core, without downloads."""
    shrink(config.model_spec.model)
    # Its activations are small, and the attention of a CPU is not among what torchtitan's policies
    # save: computing activations again would cost time and gain nothing.
    config.activation_checkpoint = None
    config.training.disable_cuda_graphs = True
    config.training.mixed_precision_param = "float32"
    config.training.seq_len = 256
    config.training.local_batch_size = 8
    config.training.steps = 3
    config.validator.enable = False
    config.validator.dataloader = HuggingFaceTextDataLoader.Config(dataset=register_dataset())
    config.checkpoint.enable = False
    config.dataloader = HuggingFaceTextDataLoader.Config(dataset=register_dataset())
    config.hf_assets_path = str(TOKENIZER_DIR)
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    return config


def use_sdpa(model: Any) -> None:
    """Use scaled dot product attention in a decoder's configuration."""
    for layer in model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
