"""Configurations that only tests need."""

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.experiments.graph_trainer.chunked_loss import ChunkedLossWrapperWithParamGrads
from torchtitan.experiments.graph_trainer.llama3 import config_registry
from torchtitan.trainer import Trainer

from pp_precompile.models import deepseek_v3, llama3, qwen3
from pp_precompile.titan.core_trainer import CoreTrainer
from pp_precompile.titan.registry import small, to_precompile_config
from pp_precompile.titan.trainer import PrecompileTrainer

C = TypeVar("C", bound=Trainer.Config)


def llama3_chunked_loss() -> PrecompileTrainer.Config:
    """The small debug model with torchtitan's chunked loss, which calls the head itself."""
    config = small(to_precompile_config(config_registry.graph_trainer_llama3_debugmodel_sdpa()))
    config.loss = ChunkedLossWrapperWithParamGrads.Config(loss_fn=CrossEntropyLoss.Config())
    assert isinstance(config.loss, ChunkedLossWrapper.Config)
    return config


class HalvedLoss(CrossEntropyLoss):
    """Half of the cross-entropy."""

    @dataclass(kw_only=True, slots=True)
    class Config(CrossEntropyLoss.Config):
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss, figures = super().__call__(*args, **kwargs)
        return loss / 2, figures


def llama3_halved_loss() -> PrecompileTrainer.Config:
    """The small debug model with another loss."""
    config = llama3.llama3_debugmodel_sdpa()
    config.loss = HalvedLoss.Config(global_vocab_size=config.loss.global_vocab_size)
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


def llama3_few_layers() -> PrecompileTrainer.Config:
    """Llama 3's debug model with two layers, on short sequences."""
    return _few_layers(llama3.llama3_debugmodel_sdpa(), 2)


def qwen3_few_layers() -> PrecompileTrainer.Config:
    """Qwen3's debug model with four layers, on short sequences."""
    return _few_layers(qwen3.qwen3_debugmodel_sdpa(), 4)


def qwen3_moe_few_layers() -> PrecompileTrainer.Config:
    """Qwen3's debug model with two layers of experts, on short sequences."""
    return _few_layers(qwen3.qwen3_debugmodel_moe_sdpa(), 2)


def deepseek_v3_few_layers() -> PrecompileTrainer.Config:
    """DeepSeek-V3's debug model with a dense layer and one with experts, on short sequences."""
    return _few_layers(deepseek_v3.deepseek_v3_debugmodel_sdpa(), 2)


def core_llama3_few_layers() -> CoreTrainer.Config:
    """The core trainer's Llama 3 with six layers, on short sequences."""
    return _few_layers(llama3.core_llama3_debugmodel_sdpa(), 6)


def core_deepseek_v3_few_layers() -> CoreTrainer.Config:
    """The core trainer's DeepSeek-V3: a dense layer and three with experts, on short sequences."""
    return _few_layers(deepseek_v3.core_deepseek_v3_debugmodel_sdpa(), 4)


def graph_llama3_six_layers() -> PrecompileTrainer.Config:
    """graph_trainer's Llama 3 of the same size as the core trainer's."""
    return _few_layers(llama3.llama3_debugmodel_sdpa(), 6)


def _few_layers(config: C, layers: int) -> C:
    config.model_spec.model.layers = config.model_spec.model.layers[:layers]
    config.training.seq_len = 64
    config.training.local_batch_size = 4
    config.training.steps = 2
    return config
