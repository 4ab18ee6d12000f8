"""Turn torchtitan's core model configurations into ours, generically, as ``core_NAME``."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any

from torchtitan.trainer import Trainer

from pp_precompile.titan.config import CoreCompileConfig
from pp_precompile.titan.core_trainer import CoreTrainer
from pp_precompile.titan.flags import with_flags
from pp_precompile.titan.registry import small, use_sdpa

ConfigFunction = Callable[[], CoreTrainer.Config]

PREFIX = "core_"


def of_core(module: ModuleType, *, sdpa: tuple[str, ...] = ()) -> dict[str, ConfigFunction]:
    """Return a config function for every one of the core trainer's in ``module``.

    They keep torchtitan's names behind ``core_``. ``sdpa`` names those, as torchtitan does, that
    also get a variant ``core_<name>_sdpa``, as :func:`pp_precompile.titan.registry.registry` makes.
    """
    names = [name for name, value in vars(module).items() if _is_config(value, module)]
    functions = {f"{PREFIX}{name}": _function(name, getattr(module, name)) for name in names}
    for name in sdpa:
        functions[f"{PREFIX}{name}_sdpa"] = _function(f"{name}_sdpa", getattr(module, name))
    return functions


def _is_config(value: object, module: ModuleType) -> bool:
    """Tell whether ``value`` is a function of ``module`` that makes a configuration of nothing."""
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return False
    signature = inspect.signature(value)
    return not signature.parameters and signature.return_annotation in (
        Trainer.Config,
        "Trainer.Config",
    )


def _function(name: str, base: Callable[[], Any]) -> ConfigFunction:
    def config() -> CoreTrainer.Config:
        converted = to_core_config(base())
        if not name.endswith("_sdpa"):
            return converted
        use_sdpa(converted.model_spec.model)
        return small(converted) if "debug" in name else converted

    config.__name__ = config.__qualname__ = f"{PREFIX}{name}"
    config.__doc__ = f"torchtitan's {base.__name__} with the flags of pp_precompile."
    return config


def to_core_config(config: Any) -> CoreTrainer.Config:
    """Return torchtitan's core ``config`` as a configuration of :class:`CoreTrainer`."""
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    values["compile"] = with_flags(CoreCompileConfig, config.compile)
    # As for the others: one stage a rank unless more is asked for.
    values["parallelism"].pipeline_parallel_schedule = "1F1B"
    return CoreTrainer.Config(**values)
