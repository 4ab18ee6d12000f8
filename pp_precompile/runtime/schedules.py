"""torch's schedules: what their ranks do, and objects that do it."""

import itertools
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.schedule import Action, ScheduleTable
from pp_precompile.graph.mesh import Placement
from pp_precompile.runtime import private_schedules


def unrolled(
    name: str, microbatches: int, placement: Placement, group: Any
) -> tuple[tuple[str, ...], ...]:
    """Return the actions of every pipeline rank under torch's schedule ``name``.

    torch's own class is asked, with stand-in stages that never run.

    Args:
        name: of a class in ``torch.distributed.pipelining``, as ``get_schedule_class`` knows it.
        microbatches: number of microbatches in a step.
        placement: the stages of each pipeline rank.
        group: the process group of the pipeline's ranks.

    Raises:
        UsageError: PPC003 if the schedule does not take these numbers.
    """
    schedule_class = private_schedules.get_schedule_class(name)
    stages = sum(map(len, placement))
    mine = placement[torch.distributed.get_rank(group)]
    meta = torch.empty(1, device="meta")
    stand_ins = [
        PipelineStage(
            nn.Identity(),
            index,
            stages,
            torch.device("cpu"),
            input_args=meta,
            output_args=meta,
            group=group,
        )
        for index in mine
    ]
    is_multi = issubclass(schedule_class, PipelineScheduleMulti)
    try:
        schedule = schedule_class(
            stand_ins if is_multi else stand_ins[0],
            microbatches,
            loss_fn=lambda *_: None,
        )
    except ValueError as error:
        raise UsageError(
            "PPC003",
            f"the schedule {name} does not take this job: {error}",
            found=f"{microbatches} microbatches, {stages} stages",
            hint="change the number of microbatches or the schedule",
        ) from error
    order = private_schedules.compute_order(schedule) or {}
    actions = tuple(
        tuple(str(action) for action in order[rank] if action is not None)
        for rank in range(len(placement))
    )
    return actions if is_multi else tuple(_as_run(mine) for mine in actions)


def _as_run(actions: tuple[str, ...]) -> tuple[str, ...]:
    """Count the forwards of a rank with one stage from 0, as torch's loop runs them.

    The table that torch 2.14.1 writes for 1F1B counts those of the last rank from 1, so that
    it leaves microbatch 0 out and ends with one that does not exist.
    """
    forwards = itertools.count()
    parsed = (Action.parse(text) for text in actions)
    return tuple(
        str(Action(action.stage, "F", next(forwards)) if action.kind == "F" else action)
        for action in parsed
    )


def torch_schedule(
    table: ScheduleTable, stages: list[PipelineStage], *, loss_fn: Any, scale_grads: bool
) -> Any:
    """Return torch's schedule object that runs ``table`` over this rank's ``stages``."""
    arguments = {
        "n_microbatches": table.microbatches,
        "loss_fn": loss_fn,
        "scale_grads": scale_grads,
    }
    if table.csv is not None:
        return private_schedules.schedule_from_actions(table.actions, stages, **arguments)
    schedule_class = private_schedules.get_schedule_class(table.name)
    is_multi = issubclass(schedule_class, PipelineScheduleMulti)
    return schedule_class(stages if is_multi else stages[0], **arguments)
