"""One pipeline as a job: what its build depends on, without any configuration to read it from.

A configuration names what a model is; a module does not. So a job is known by what its stages
compute: each rank traces its own, which takes seconds and no compiler, and the keys of the traced
programs are the job's key factors. A user who can name the model gives a key, and then nothing is
traced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import nn

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.environment import Environment, host_environment
from pp_precompile.contract.key import build_id
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.schedule import ScheduleTable, backward_kinds
from pp_precompile.graph.identity import input_factors, plan_factors
from pp_precompile.pipelining.part import NamedStage, Part
from pp_precompile.runtime.device import device_facts
from pp_precompile.stage.boundary import Meshes
from pp_precompile.stage.programs import StageSource, TracedStage, trace_stage
from pp_precompile.stage.settings import program_factors


@dataclass(kw_only=True)
class PipelineJob:
    """A pipeline whose stages are compiled; see :class:`pp_precompile.runtime.job.Job`.

    ``parts`` are the stages that this process has. ``stage_factors`` are the key factors of all
    stages, also of those of other ranks; they are set once, before anything asks for the job's.
    """

    parts: Mapping[int, Part]
    schedule: ScheduleTable
    device: torch.device
    key: str | None
    stage_factors: dict[str, str] = field(default_factory=dict)
    _traced: dict[int, TracedStage] = field(default_factory=dict)

    @property
    def how_to_build(self) -> str:
        """What a user does who lacks the build."""
        return (
            "call pp_precompile.pipelining.build() with the same arguments, or pass policy='auto'"
        )

    @cached_property
    def environment(self) -> Environment:
        """Software and device of this host."""
        return host_environment(device_facts(self.device))

    @cached_property
    def compiler(self) -> dict[str, str]:
        """What steers the compiler."""
        return program_factors(self.environment)

    @property
    def mesh(self) -> MeshSpec:
        """The pipeline's ranks."""
        return MeshSpec(dims=("pp",), sizes=(len(self.schedule.stages_of_rank),))

    @property
    def stages(self) -> int:
        """Number of stages over all ranks."""
        return sum(map(len, self.schedule.stages_of_rank))

    @cached_property
    def factors(self) -> dict[str, str]:
        """Everything that can reach the job's programs, by name."""
        split = [(NamedStage.module_name(index),) for index in range(self.stages)]
        plan = plan_factors(self.mesh, split, self.schedule)
        named = {} if self.key is None else {"key": self.key}
        return {**plan, **self.compiler, **named, **self.stage_factors}

    @cached_property
    def build_id(self) -> Digest:
        """Digest of the factors."""
        return build_id(self.factors)

    def meshes(self) -> Meshes:
        """Return no meshes: stages communicate through the schedule alone."""
        return ()

    def own_factors(self) -> dict[str, str]:
        """Return the key factors of this process's stages; traces them unless a key was given.

        Raises:
            CompileError: PPC301 or PPC304 if one cannot be traced.
        """
        factors: dict[str, str] = {}
        for index, part in self.parts.items():
            if index in (0, self.stages - 1):
                factors |= input_factors(f"inputs.stage[{index}]", part.arguments)
            if index == 0:
                factors |= input_factors("inputs.keyword", part.keywords)
            if self.key is None:
                for role, program in self.trace(part.named, index).programs.items():
                    factors[f"programs[{index}].{role}"] = program.key
        return factors

    def trace(self, module: nn.Module, stage: int) -> TracedStage:
        """Trace a stage, once.

        Raises:
            CompileError: PPC301 or PPC304.
        """
        if stage not in self._traced:
            part = self.parts[stage]
            source = StageSource(
                index=stage,
                modules=(NamedStage.module_name(stage),),
                module=module,
                arguments=part.arguments,
                keywords=part.keywords,
                backward_kinds=backward_kinds(self.schedule, stage),
            )
            self._traced[stage] = trace_stage(
                source,
                device=torch.device(self.device.type),
                meshes=self.meshes(),
                compiler=self.compiler,
            )
        return self._traced[stage]


def microbatch_size(parts: Sequence[Part]) -> int:
    """Return the first dimension of what a stage takes: a schedule cuts along it."""
    inputs = (*parts[0].arguments, *parts[0].keywords) if parts else ()
    return next((item.tensor.shape[0] for item in inputs if item.tensor.shape), 1)
