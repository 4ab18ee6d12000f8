"""Every private part of torch's pipeline schedules that is used, in one place.

Checked with torch 2.14.1 and 2.15.0.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.distributed.pipelining.schedules import get_schedule_class


def schedule_from_actions(
    actions: Sequence[Sequence[str]], stages: list[Any], **arguments: Any
) -> Any:
    """Return torch's runtime for the actions of each rank, written as in a schedule file.

    Does what ``_PipelineScheduleRuntime._load_csv`` does after it has read its file. A file without
    communication gets torch's own, which also adds the reduction of gradients. One with it says
    nothing about waiting, which is no part of the format: torch 2.15 is told where to wait.
    """
    from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

    order = {rank: [_Action.from_str(text) for text in row] for rank, row in enumerate(actions)}
    computes = all(action.is_compute_op for row in order.values() for action in row)
    schedule = _PipelineScheduleRuntime(stages, **arguments)
    schedule.pipeline_order = order
    if computes:
        schedule._prepare_schedule_with_comms(order, format="compute_only")
    else:
        schedule._prepare_schedule_with_comms(_with_waits(order), format="compute_comms")
    return schedule


def _with_waits(order: dict[int, list[Any]]) -> dict[int, list[Any]]:
    """Add the waits for sends and reductions where torch 2.15 itself puts them.

    It refuses a schedule with communication and without them. torch 2.14 has no such actions: it
    waits for all sends at the end of a step, and reduces at once.
    """
    from torch.distributed.pipelining import schedules

    if not hasattr(schedules, "_add_wait_send"):
        return order
    reduced = {rank: list(_wait_after_reducing(row)) for rank, row in order.items()}
    waiting: dict[int, list[Any]] = schedules._add_wait_send(reduced)
    return waiting


def _wait_after_reducing(row: Iterable[Any]) -> Iterator[Any]:
    from torch.distributed.pipelining.schedules import _Action, _ComputationType

    for action in row:
        yield action
        if action.computation_type is _ComputationType.REDUCE_GRAD:
            yield _Action(action.stage_index, _ComputationType.WAIT_REDUCE_GRAD, None)


def compute_order(schedule: Any) -> dict[int, list[Any]] | None:
    """Return a schedule's order of compute actions by pipeline rank, with None for bubbles.

    Waits are left out, which torch 2.15 writes behind the reduction of a rank with one stage
    (``0REDUCE_GRAD``, ``0WAIT_REDUCE_GRAD``): a job's table is the same for all versions.
    """
    order: dict[int, list[Any]] | None = schedule.pipeline_order
    if order is None:
        return None
    return {
        rank: [action for action in row if action is None or not _is_wait(action)]
        for rank, row in order.items()
    }


def _is_wait(action: Any) -> bool:
    name: str = action.computation_type.name
    return name.startswith("WAIT_")


__all__ = ["compute_order", "get_schedule_class", "schedule_from_actions"]
