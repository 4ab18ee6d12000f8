"""One training job as this package sees it: the same facts from a build and from every rank."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torchtitan.components.loss import ChunkedLossWrapper
from torchtitan.distributed.fsdp import get_fsdp_reshard_after_forward_policy

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.environment import Environment, host_environment
from pp_precompile.contract.errors import CompileError, Where
from pp_precompile.contract.key import build_id, differing
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.schedule import ScheduleTable, backward_kinds
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.runtime.device import device_facts
from pp_precompile.stage import private_torch
from pp_precompile.stage.loss import LossModule
from pp_precompile.stage.private_torch import BoxedCallable
from pp_precompile.stage.programs import StageSource, TracedStage, trace_stage
from pp_precompile.stage.settings import program_factors
from pp_precompile.titan import private_titan
from pp_precompile.titan.checkpointing import checkpointing
from pp_precompile.titan.factors import job_factors
from pp_precompile.titan.inputs import StageInputs
from pp_precompile.titan.schedule import schedule_table
from pp_precompile.titan.split import Split, stage_split
from pp_precompile.titan.supported import check_device

_MESH_DIMS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""torchtitan's mesh dimensions, outermost first."""

_GROUP_DIMS = ("dp_replicate", "fsdp", "tp", "ep", "efsdp")
"""The mesh dimensions whose groups may appear in a stage program."""

_HEAD = "lm_head"


@dataclass(frozen=True, kw_only=True)
class Job:
    """Configuration, mesh, split, schedule and environment of one job."""

    config: Any
    parallel_dims: Any
    device: torch.device
    environment: Environment
    mesh: MeshSpec
    split: Split
    schedule: ScheduleTable
    inputs: StageInputs
    compiler: dict[str, str]
    factors: dict[str, str]

    @cached_property
    def build_id(self) -> Digest:
        """Digest of the factors: the identity of the build that this job needs."""
        return build_id(self.factors)

    @property
    def how_to_build(self) -> str:
        """What a user does who lacks the build."""
        return (
            "run 'pp-precompile build' with the same arguments, or use "
            "--compile.precompile_policy auto"
        )

    @property
    def gather_once(self) -> bool:
        """Whether parameters are gathered once a step and not once a microbatch.

        As torchtitan decides it: by ``parallelism.fsdp_reshard_after_forward``, whose default is
        to keep parameters gathered in a pipeline only.
        """
        return not get_fsdp_reshard_after_forward_policy(
            self.config.parallelism.fsdp_reshard_after_forward, self.parallel_dims.pp_enabled
        )

    def stages_of(self, pp_rank: int) -> tuple[int, ...]:
        """Return the stage indices of a pipeline rank."""
        return self.schedule.stages_of_rank[pp_rank]

    @classmethod
    def own_factors(cls, factors: dict[str, str]) -> dict[str, str]:
        """Return the key factors of this kind of job, of those that all kinds have."""
        return factors

    def stage_module(self, model: nn.Module, stage: int, arguments: Mapping[str, Any]) -> nn.Module:
        """Return stage ``stage`` of the meta ``model`` as :meth:`trace` takes it.

        It is parallelized by the model's own function, which gets ``arguments``.
        """
        module = self.split_model(model, stage)
        parallel: nn.Module = self.config.model_spec.parallelize_fn(module, **arguments)
        return parallel

    def split_model(self, model: nn.Module, stage: int) -> nn.Module:
        """Return stage ``stage`` of ``model``, not yet parallelized.

        Without pipeline parallelism that is ``model`` itself.
        """
        if len(self.split) == 1:
            return model
        return private_titan.split_module(model, self.split[stage])

    @staticmethod
    def compiler_factors(config: Any, environment: Environment) -> dict[str, str]:
        """Return what steers the compiler."""
        return program_factors(environment)

    @staticmethod
    def loss_arguments(inputs: StageInputs) -> tuple[NamedTensor, ...]:
        """Return what is called the loss's inputs in the job's key."""
        return inputs.loss_arguments()

    @property
    def traced_together(self) -> tuple[tuple[int, ...], ...]:
        """The stages in the groups that a build hands to :meth:`trace_all`, in order."""
        return tuple((index,) for index in range(len(self.split)))

    def trace_all(self, modules: Mapping[int, nn.Module]) -> dict[int, TracedStage]:
        """Trace parallelized stage modules by index; see :meth:`trace`."""
        return {index: self.trace(module, index) for index, module in modules.items()}

    def unpack(self, code: bytes) -> BoxedCallable:
        """Make a program callable from the code in its blob, which was verified."""
        return private_torch.load_artifact(code)

    def trace(self, module: nn.Module, stage: int) -> TracedStage:
        """Trace a parallelized stage module.

        Raises:
            CompileError: see :func:`pp_precompile.stage.programs.trace_stage`; PPC304 if a setting
                that steers the compiler was changed since the job's key was taken.
        """
        self._check_compiler(stage)
        return trace_stage(
            self._source(module, stage),
            device=torch.device(self.device.type),
            meshes=self.meshes(),
            compiler=self.compiler,
        )

    def _check_compiler(self, stage: int) -> None:
        found = self.compiler_factors(self.config, self.environment)
        changed = differing(found, self.compiler)
        if changed:
            raise CompileError(
                "PPC304",
                "the compiler's settings changed after the job's key was taken",
                where=Where(stage=stage, field=", ".join(changed)),
                expected="the settings that the key names",
                hint="change torch's settings before training starts, not while the model is built",
            )

    def meshes(self) -> list[DeviceMesh]:
        """Return the one-dimensional meshes whose groups stage programs communicate over."""
        meshes = [self.parallel_dims.get_optional_mesh(name) for name in _GROUP_DIMS]
        return [mesh for mesh in meshes if mesh is not None]

    def _source(self, module: nn.Module, stage: int) -> StageSource:
        is_last = stage == len(self.split) - 1
        loss = self._loss_module(module) if is_last else None
        return StageSource(
            index=stage,
            modules=self.split[stage],
            module=module.train(),
            arguments=self.inputs.arguments(stage),
            keywords=self.inputs.keywords(),
            loss=loss,
            loss_arguments=self.inputs.loss_arguments() if is_last else (),
            backward_kinds=backward_kinds(self.schedule, stage),
            gather_once=self.gather_once,
            checkpointing=checkpointing(self.config),
        )

    def _loss_module(self, module: nn.Module) -> LossModule:
        """Return the job's loss, uncompiled; a chunked loss takes the head over from the stage."""
        loss_fn: Callable[..., Any] = self.config.loss.build(compile_config=None)
        if not isinstance(loss_fn, ChunkedLossWrapper):
            return LossModule(loss_fn)
        head = module.get_submodule(_HEAD)
        loss_fn.set_lm_head(head)
        module._skip_lm_head = True
        return LossModule(loss_fn, head=head, head_name=_HEAD)


def describe_job(
    config: Any,
    *,
    model: nn.Module,
    parallel_dims: Any,
    device: torch.device,
    kind: type[Job] = Job,
) -> Job:
    """Gather all facts of a job.

    Args:
        config: torchtitan's configuration, after the model was updated from it.
        model: the whole model on meta, before it is split and wrapped.
        parallel_dims: torchtitan's dimensions, with meshes built.
        device: the device of this rank.
        kind: the front end's kind of job.

    Raises:
        PrecompileError: PPC002 to PPC005 for a configuration that cannot work.
    """
    check_device(device)
    private_titan.forget_wrapped_classes()
    private_torch.forget_meshes()
    parallelism = config.parallelism
    split = stage_split(parallel_dims, parallelism, config.model_spec.model)
    pp_mesh = parallel_dims.get_optional_mesh("pp")
    schedule = schedule_table(
        parallelism,
        local_batch_size=config.training.local_batch_size,
        stages=len(split),
        pp_group=None if pp_mesh is None else pp_mesh.get_group(),
    )
    mesh = MeshSpec(
        dims=_MESH_DIMS,
        sizes=tuple(getattr(parallel_dims, d) for d in _MESH_DIMS),
        experts=parallel_dims.ep,
    )
    environment = host_environment(device_facts(device))
    inputs = StageInputs(config, schedule.microbatch_size, device.type, split=split)
    compiler = kind.compiler_factors(config, environment)
    factors = job_factors(
        config,
        model=model,
        mesh=mesh,
        split=split,
        schedule=schedule,
        inputs=inputs,
        loss_arguments=kind.loss_arguments(inputs),
        compiler=compiler,
    )
    return kind(
        config=config,
        parallel_dims=parallel_dims,
        device=device,
        environment=environment,
        mesh=mesh,
        split=split,
        schedule=schedule,
        inputs=inputs,
        compiler=compiler,
        factors=kind.own_factors(factors),
    )
