"""Llama 3 with precompiled stages: ``--module pp_precompile.models.llama3``."""

from torchtitan.experiments.graph_trainer.llama3 import config_registry
from torchtitan.models.llama3 import config_registry as core

from pp_precompile.titan.core_registry import of_core
from pp_precompile.titan.registry import registry

globals().update(registry(config_registry, sdpa=("llama3_8b", "llama3_70b")))
globals().update(of_core(core, sdpa=("llama3_debugmodel", "llama3_8b", "llama3_70b")))
