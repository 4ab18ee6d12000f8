"""Configurations that only tests need."""

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.experiments.graph_trainer.chunked_loss import ChunkedLossWrapperWithParamGrads
from torchtitan.experiments.graph_trainer.llama3 import config_registry

from pp_precompile.titan.registry import small, to_precompile_config
from pp_precompile.titan.trainer import PrecompileTrainer


def llama3_chunked_loss() -> PrecompileTrainer.Config:
    """The small debug model with torchtitan's chunked loss, which calls the head itself."""
    config = small(to_precompile_config(config_registry.graph_trainer_llama3_debugmodel_sdpa()))
    config.loss = ChunkedLossWrapperWithParamGrads.Config(loss_fn=CrossEntropyLoss.Config())
    assert isinstance(config.loss, ChunkedLossWrapper.Config)
    return config


def llama3_uneven_stages() -> PrecompileTrainer.Config:
    """The small debug model in four stages of one, three, two and no layers."""
    config = small(to_precompile_config(config_registry.graph_trainer_llama3_debugmodel_sdpa()))
    config.parallelism.module_fqns_per_model_part = [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2", "layers.3"],
        ["layers.4", "layers.5"],
        ["norm", "lm_head"],
    ]
    return config
