"""Build this rank's stage modules and torch's pipeline stages from torchtitan's arguments."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti

from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.titan import private_titan
from pp_precompile.titan.job import Job


def parallel_stage(
    job: Job, model: nn.Module, stage: int, arguments: Mapping[str, Any]
) -> nn.Module:
    """Return stage ``stage`` of the meta ``model``, parallelized by the model's own function."""
    module = job.split_model(model, stage)
    parallel: nn.Module = job.config.model_spec.parallelize_fn(module, **arguments)
    return parallel


def parallel_arguments(job: Job) -> dict[str, Any]:
    """Return what torchtitan hands to a model's parallelize function.

    Its own compilation is off: it would change the compiler's settings for the whole process.
    """
    config = job.config
    return {
        "parallel_dims": job.parallel_dims,
        "training": config.training,
        "parallelism": config.parallelism,
        "compile_config": dataclasses.replace(config.compile, enable=False),
        "ac_config": config.activation_checkpoint,
        "dump_folder": config.dump_folder,
    }


def pipeline_stage(job: Job, module: nn.Module, record: StageRecord) -> PipelineStage:
    """Return torch's stage around ``module``, with inputs and outputs known in advance.

    Known on every stage, they spare the first step its shape-inference forward and the exchange
    of pickled metadata between ranks.
    """
    return PipelineStage(
        module,
        record.index,
        len(job.split),
        job.device,
        input_args=tuple(_meta(item.tensor) for item in record.arguments),
        output_args=tuple(_meta(tensor, requires_grad=True) for tensor in record.outputs),
        group=job.parallel_dims.get_mesh("pp").get_group(),
    )


def pipeline_schedule(job: Job, stages: list[PipelineStage], loss_fn: Any) -> Any:
    """Return torch's schedule over ``stages``; ``loss_fn`` is one of torchtitan's losses."""
    schedule_class = private_titan.get_schedule_class(job.schedule.name)

    def scalar_loss(*args: Any, **kwargs: Any) -> torch.Tensor:
        loss, _ = loss_fn(*args, **kwargs)
        return loss

    return schedule_class(
        stages if issubclass(schedule_class, PipelineScheduleMulti) else stages[0],
        n_microbatches=job.schedule.microbatches,
        loss_fn=scalar_loss,
        scale_grads=False,
    )


def _meta(spec: TensorSpec, *, requires_grad: bool | None = None) -> torch.Tensor:
    tensor = torch.empty_strided(
        spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device="meta"
    )
    return tensor.requires_grad_(spec.requires_grad if requires_grad is None else requires_grad)
