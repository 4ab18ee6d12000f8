"""A job of torchtitan's core trainer, whose layers run programs inside FSDP2's hooks.

The programs compute with whole parameters and know nothing of data parallelism: jobs of any number
of data-parallel ranks have the same ones.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torchtitan.config import TORCH_DTYPE_MAP

from pp_precompile.contract.errors import UsageError, Where
from pp_precompile.contract.schedule import backward_kinds
from pp_precompile.stage.blocks import BlockTracer
from pp_precompile.stage.describe import describe_state
from pp_precompile.stage.programs import StageSource, TracedStage
from pp_precompile.titan.checkpointing import checkpointing
from pp_precompile.titan.job import Job

LAYERS = "layers"
"""torchtitan's name for the blocks of a decoder."""

_UNREAD = ("param_init", "_param_init", "sharding_config", "_sharding_config")
"""How torchtitan's modules initialize parameters, which differs from layer to layer, and how they
would be cut if they were parallelized."""

_OF_LOSS = ("loss.", "inputs.loss.")


@dataclass(frozen=True, kw_only=True)
class BlockJob(Job):
    """One job whose stages run by blocks; embedding, norm, head and loss run eagerly."""

    def __post_init__(self) -> None:
        """Refuse schedules that split backwards.

        torch splits one by walking the graph that autograd recorded, and a block is one node of it.

        Raises:
            UsageError: PPC002.
        """
        for stage in range(len(self.split)):
            split = sorted(backward_kinds(self.schedule, stage) - {"B"})
            if split:
                raise UsageError(
                    "PPC002",
                    f"blocks do not support the schedule {self.schedule.name}, which runs the "
                    "gradients of inputs and weights apart",
                    where=Where(stage=stage, field="parallelism.pipeline_parallel_schedule"),
                    expected="whole backwards: GPipe, 1F1B, LoopedBFS, Interleaved1F1B, or a file "
                    "with B alone",
                    found=f"actions {' and '.join(split)}",
                    hint="change the schedule, or use a configuration without core_, whose stages "
                    "have programs for both parts",
                )

    @classmethod
    def own_factors(cls, factors: dict[str, str]) -> dict[str, str]:
        """Return the key factors without the loss, which runs eagerly, and with the front end."""
        kept = {n: v for n, v in factors.items() if n != "loss" and not n.startswith(_OF_LOSS)}
        return kept | {"front_end": "blocks"}

    @property
    def gather_once(self) -> bool:
        """Whether programs gather once a step: never, FSDP2 does."""
        return False

    def meshes(self) -> list[DeviceMesh]:
        """Return no meshes: blocks do not communicate."""
        return []

    def stage_module(self, model: nn.Module, stage: int, arguments: Mapping[str, Any]) -> nn.Module:
        """Return a copy of stage ``stage`` as its programs see it while they run.

        Nothing is parallelized. Parameters have the dtype in which FSDP2 gathers them; it leaves
        buffers as they are.
        """
        whole = len(self.split) == 1
        module = copy.deepcopy(model) if whole else self.split_model(model, stage)
        dtype = TORCH_DTYPE_MAP[self.config.training.mixed_precision_param]
        for child in module.modules():
            for name, parameter in child._parameters.items():
                if parameter is not None:
                    cast = parameter.detach().to(dtype)
                    child._parameters[name] = nn.Parameter(cast, parameter.requires_grad)
        return module.train()

    def trace(self, module: nn.Module, stage: int) -> TracedStage:
        """Trace the layers of a stage module, each distinct one once.

        Raises:
            CompileError: see :meth:`Job.trace`.
        """
        self._check_compiler(stage)
        names = [name for name in self.split[stage] if name.startswith(f"{LAYERS}.")]
        blocks = tuple(self._tracer.trace(self._block(module, stage, name)) for name in names)
        parameters, buffers = describe_state(module, device=self.device.type)
        return TracedStage(
            source=StageSource(
                index=stage,
                modules=self.split[stage],
                module=module,
                arguments=self.inputs.arguments(stage),
                keywords=self.inputs.keywords(),
            ),
            outputs=self.inputs.outputs(stage),
            parameters=parameters,
            buffers=buffers,
            programs={},
            blocks=blocks,
        )

    @cached_property
    def _tracer(self) -> BlockTracer:
        return BlockTracer(torch.device(self.device.type), self.compiler, unread=_UNREAD)

    def _block(self, module: nn.Module, stage: int, name: str) -> StageSource:
        return StageSource(
            index=stage,
            modules=(name,),
            module=module.get_submodule(name),
            arguments=self.inputs.block_arguments(),
            keywords=self.inputs.keywords(),
            checkpointing=checkpointing(self.config),
        )
