"""Build this rank's stage modules and torch's pipeline stages from torchtitan's arguments."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from pp_precompile.contract.stage import StageRecord
from pp_precompile.runtime.pipeline_stage import PrecompiledStage
from pp_precompile.runtime.schedules import torch_schedule
from pp_precompile.runtime.stage_forward import StageForward
from pp_precompile.titan.job import Job


def parallel_stage(
    job: Job, model: nn.Module, stage: int, arguments: Mapping[str, Any]
) -> nn.Module:
    """Return stage ``stage`` of the meta ``model`` as the job traces it and compares it."""
    return job.stage_module(model, stage, arguments)


def parallel_arguments(job: Job) -> dict[str, Any]:
    """Return what torchtitan hands to a model's parallelize function.

    Its own compilation is off: it would change the compiler's settings for the whole process. So is
    checkpointing of activations in modules, which the programs do.
    """
    config = job.config
    return {
        "parallel_dims": job.parallel_dims,
        "training": config.training,
        "parallelism": config.parallelism,
        "compile_config": dataclasses.replace(config.compile, enable=False),
        "ac_config": None,
        "dump_folder": config.dump_folder,
    }


def pipeline_stage(
    job: Job, module: nn.Module, forward: StageForward, record: StageRecord
) -> PrecompiledStage:
    """Return torch's stage around ``module``, in which ``forward`` was installed."""
    return PrecompiledStage(
        module,
        forward,
        record,
        stages=len(job.split),
        device=job.device,
        group=job.parallel_dims.get_mesh("pp").get_group(),
    )


def pipeline_schedule(job: Job, stages: list[PrecompiledStage], loss_fn: Any) -> Any:
    """Return torch's schedule over ``stages``; ``loss_fn`` is one of torchtitan's losses."""

    def scalar_loss(*args: Any, **kwargs: Any) -> torch.Tensor:
        loss, _ = loss_fn(*args, **kwargs)
        return loss

    return torch_schedule(job.schedule, list(stages), loss_fn=scalar_loss, scale_grads=False)
