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
from pp_precompile.contract.errors import CompileError, Where
from pp_precompile.contract.key import build_id
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.schedule import ScheduleTable, backward_kinds
from pp_precompile.graph.identity import input_factors, plan_factors
from pp_precompile.graph.microbatches import check_boundary
from pp_precompile.graph.refuse import refuse
from pp_precompile.pipelining.part import NamedStage, Part
from pp_precompile.runtime.device import device_facts
from pp_precompile.stage.boundary import Meshes
from pp_precompile.stage.private_torch import BoxedCallable, load_artifact
from pp_precompile.stage.programs import StageSource, TracedStage, trace_stage
from pp_precompile.stage.settings import program_factors


@dataclass(kw_only=True)
class PipelineJob:
    """A pipeline whose stages are compiled; see :class:`pp_precompile.runtime.job.Job`.

    ``parts`` are the stages that this process has. ``stage_factors`` are the key factors of all
    stages, also of those of other ranks; they are set once, before anything asks for the job's.
    """

    parts: Mapping[int, Part]
    mesh: MeshSpec
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
            CompileError: PPC301, PPC304, PPC502 or PPC531, as :meth:`trace`.
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

    def trace_all(self, modules: Mapping[int, nn.Module]) -> dict[int, TracedStage]:
        """Trace stages by index; see :meth:`trace`."""
        return {index: self.trace(module, index) for index, module in modules.items()}

    def unpack(self, code: bytes) -> BoxedCallable:
        """Make a program callable from the code in its blob."""
        return load_artifact(code)

    def trace(self, module: nn.Module, stage: int) -> TracedStage:
        """Trace a stage, once.

        Raises:
            CompileError: PPC301 or PPC304; PPC531 if it takes or returns something that does not
                hold one microbatch, PPC502 if it has no gradient for the stage before.
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
            traced = trace_stage(
                source,
                device=torch.device(self.device.type),
                meshes=self.meshes(),
                compiler=self.compiler,
            )
            # The manifest is checked for both as well, but only after everything was compiled.
            size = self.schedule.microbatch_size
            findings = check_boundary(stage, source.arguments, traced.outputs, size=size)
            refuse(findings, f"stage {stage}", error=CompileError)
            _check_gradients(traced)
            self._traced[stage] = traced
        return self._traced[stage]


def _check_gradients(traced: TracedStage) -> None:
    values = [value for program in traced.programs.values() for value in program.outputs]
    given = {value.name for value in values if value.kind == "argument_gradient"}
    for item in traced.source.arguments:
        if item.tensor.requires_grad and item.name not in given:
            raise CompileError(
                "PPC502",
                f"the stage computes no gradient of its input {item.name}",
                where=Where(stage=traced.source.index, field=item.name),
                expected="a gradient of each floating-point input, for the stage before",
                found="an input that is detached, compared, rounded or not used",
                hint="compute integers or booleans of it in the stage before and pass those, or "
                "leave it out",
            )


def microbatch_size(parts: Sequence[Part]) -> int:
    """Return the first dimension of what a stage takes: a schedule cuts along it."""
    inputs = (*parts[0].arguments, *parts[0].keywords) if parts else ()
    return next((item.tensor.shape[0] for item in inputs if item.tensor.shape), 1)
