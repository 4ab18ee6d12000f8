"""DeepSeek-V3 with precompiled stages: ``--module pp_precompile.models.deepseek_v3``."""

from torchtitan.experiments.graph_trainer.deepseek_v3 import config_registry
from torchtitan.models.deepseek_v3 import config_registry as core

from pp_precompile.titan.core_registry import of_core
from pp_precompile.titan.registry import registry

globals().update(registry(config_registry, sdpa=("deepseek_v3_debugmodel",)))
globals().update(of_core(core, sdpa=("deepseek_v3_debugmodel", "deepseek_v3_16b")))
