"""Llama 3 with precompiled stages: ``--module pp_precompile.models.llama3``."""

from torchtitan.experiments.graph_trainer.llama3 import config_registry

from pp_precompile.titan.registry import registry

globals().update(registry(config_registry, sdpa=("llama3_8b", "llama3_70b")))
