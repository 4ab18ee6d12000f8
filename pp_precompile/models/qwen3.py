"""Qwen3 with precompiled stages: ``--module pp_precompile.models.qwen3``."""

from torchtitan.experiments.graph_trainer.qwen3 import config_registry

from pp_precompile.titan.registry import registry

_SDPA = ("qwen3_debugmodel", "qwen3_debugmodel_moe", "qwen3_14b")

globals().update(registry(config_registry, sdpa=_SDPA))
