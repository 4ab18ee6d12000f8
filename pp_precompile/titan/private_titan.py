"""Every private part of torchtitan that is used, in one place. Checked with torchtitan 0.3.0."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from torch import nn
from torch.distributed.pipelining.schedules import get_schedule_class

from pp_precompile.contract.errors import PrecompileError

CHECKED = ("0.3",)
"""The torchtitan versions (major.minor) that this module was checked with."""


def check_version() -> None:
    """Refuse a torchtitan that this module was not checked with.

    Raises:
        PrecompileError: PPC006.
    """
    found = version("torchtitan")
    if ".".join(found.split(".")[:2]) not in CHECKED:
        raise PrecompileError(
            "PPC006",
            "this torchtitan was not checked with pp_precompile",
            expected=f"torchtitan {' or '.join(CHECKED)}",
            found=f"torchtitan {found}",
            hint="install a supported torchtitan, or a newer pp_precompile",
        )


def generate_split(parallel_dims: Any, parallelism: Any, model_config: Any) -> list[list[str]]:
    """Return torchtitan's own split of a decoder into stages, as module FQNs for each stage.

    Raises:
        ValueError: if the layers cannot be split that way.
    """
    from torchtitan.distributed.pipeline_parallel import (
        _generate_llm_fqn_per_model_part,
        _get_pipeline_metadata,
    )

    return _generate_llm_fqn_per_model_part(
        *_get_pipeline_metadata(parallel_dims, parallelism, model_config)
    )


def stages_of_rank(pp_rank: int, pp_degree: int, schedule: str, stages: int) -> tuple[int, ...]:
    """Return the stage indices of a pipeline rank (loop or V placement, by the schedule)."""
    from torchtitan.distributed.pipeline_parallel import _get_pp_rank_to_stage_indices_mapping

    return _get_pp_rank_to_stage_indices_mapping(pp_rank, pp_degree, schedule, stages)


def split_module(model: nn.Module, names: tuple[str, ...]) -> nn.Module:
    """Return a copy of ``model`` that holds only the modules called ``names``."""
    from torchtitan.distributed.pipeline_parallel import _split_module

    return _split_module(model, list(names))


def schedule_from_actions(
    actions: Sequence[Sequence[str]], stages: list[Any], **arguments: Any
) -> Any:
    """Return torch's runtime for the actions of each rank, written as in a schedule file.

    Does what ``_PipelineScheduleRuntime._load_csv`` does after it has read its file. A file without
    communication gets torch's own, which also adds the reduction of gradients.
    """
    from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

    order = {rank: [_Action.from_str(text) for text in row] for rank, row in enumerate(actions)}
    computes = all(action.is_compute_op for row in order.values() for action in row)
    schedule = _PipelineScheduleRuntime(stages, **arguments)
    schedule.pipeline_order = order
    schedule._prepare_schedule_with_comms(
        order, format="compute_only" if computes else "compute_comms"
    )
    return schedule


def compute_order(schedule: Any) -> dict[int, list[Any]] | None:
    """Return a schedule's order of compute actions by pipeline rank, with None for bubbles."""
    order: dict[int, list[Any]] | None = schedule.pipeline_order
    return order


__all__ = [
    "CHECKED",
    "check_version",
    "compute_order",
    "generate_split",
    "get_schedule_class",
    "schedule_from_actions",
    "split_module",
    "stages_of_rank",
]
