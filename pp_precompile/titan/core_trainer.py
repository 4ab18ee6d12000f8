"""torchtitan's core trainer with precompiled blocks; without the flag it is the trainer itself."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torchtitan.tools import utils
from torchtitan.trainer import Trainer

from pp_precompile.runtime.acquire import Acquired
from pp_precompile.runtime.block_forward import BlockForward, install_block
from pp_precompile.titan.config import CoreCompileConfig
from pp_precompile.titan.core_job import LAYERS
from pp_precompile.titan.stages import parallel_stage
from pp_precompile.titan.trainer import PrecompiledStages, StoredPrograms


class CoreTrainer(StoredPrograms, Trainer):
    """Trains with FSDP2 and block programs from a store; see :class:`CoreCompileConfig`."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        """The core trainer's configuration with the flags of this package."""

        compile: CoreCompileConfig = field(default_factory=CoreCompileConfig)

    def _stored(self, config: Any) -> PrecompiledStages:
        """Return what acquires the programs, and puts them in place."""
        return PrecompiledBlocks(config)


class PrecompiledBlocks(PrecompiledStages):
    """The blocks of this rank's stages, between torchtitan asking for modules and using them.

    torchtitan splits, shards and schedules as it always does. Its modules get the programs before
    they are wrapped, so that FSDP2's hooks are around them.
    """

    def __init__(self, config: Any) -> None:
        """Check the configuration, as :class:`PrecompiledStages` does."""
        super().__init__(config)
        self._blocks: list[BlockForward] = []

    def _parallelize(self, model: nn.Module, **arguments: Any) -> nn.Module:
        """Stand in for the model's parallelize function: a pipeline of one stage."""
        job = self._describe(model, arguments["parallel_dims"], utils.get_local_device())
        acquired = self._acquire(job, {0: parallel_stage(job, model, 0, arguments)})
        return self._with_programs(model, acquired, arguments)

    def _pipeline(
        self, model: nn.Module, *, device: torch.device, parallelize_fn: Any, **arguments: Any
    ) -> tuple[Any, list[nn.Module], bool, bool]:
        """Stand in for torchtitan's pipelining function, which it calls."""
        parallel_dims = arguments["parallel_dims"]
        job = self._describe(model, parallel_dims, device)
        indices = job.stages_of(parallel_dims.get_mesh("pp").get_local_rank())
        modules = {i: parallel_stage(job, model, i, arguments) for i in indices}
        acquired = self._acquire(job, modules)

        def parallelize(part: nn.Module, **keywords: Any) -> nn.Module:
            return self._with_programs(part, acquired, keywords)

        result: tuple[Any, list[nn.Module], bool, bool] = self._config.model_spec.pipelining_fn(
            model, device=device, parallelize_fn=parallelize, **arguments
        )
        return result

    def _with_programs(
        self, part: nn.Module, acquired: Acquired, arguments: dict[str, Any]
    ) -> nn.Module:
        """Let the layers of a stage run their programs, then let torchtitan wrap them."""
        blocks = {b.record.name: b for stage in acquired.stages.values() for b in stage.blocks}
        for name, layer in part.get_submodule(LAYERS).named_children():
            self._blocks.append(install_block(layer, blocks[f"{LAYERS}.{name}"]))
        wrapped: nn.Module = self._config.model_spec.parallelize_fn(part, **arguments)
        return wrapped

    def attach(self, trainer: Trainer) -> None:
        """Do nothing: blocks look their parameters up, and compare them when they first run."""
