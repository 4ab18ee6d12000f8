"""Qwen3 with precompiled stages: ``--module pp_precompile.models.qwen3``."""

from torchtitan.experiments.graph_trainer.qwen3 import config_registry
from torchtitan.models.qwen3 import config_registry as core

from pp_precompile.titan.core_registry import of_core
from pp_precompile.titan.registry import registry

_SDPA = ("qwen3_debugmodel", "qwen3_debugmodel_moe", "qwen3_14b")
_CORE_SDPA = ("qwen3_debugmodel", "qwen3_moe_debug", "qwen3_14b")

globals().update(registry(config_registry, sdpa=_SDPA))
globals().update(of_core(core, sdpa=_CORE_SDPA))
