"""The schedule of a job as a table, from torch's own schedule classes."""

import itertools
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.schedule import Action, ScheduleTable
from pp_precompile.titan import private_titan

_WITHOUT_PROGRAM = frozenset({"I", "W", "OVERLAP_F_B"})
"""Kinds of action that need programs beside whole forwards and backwards."""

_NO_PIPELINE = "none"


def schedule_table(
    parallelism: Any, *, local_batch_size: int, stages: int, pp_group: Any
) -> ScheduleTable:
    """Unroll the job's schedule for all pipeline ranks.

    Args:
        parallelism: torchtitan's parallelism section.
        local_batch_size: sequences of one data-parallel rank in one step.
        stages: number of stages over all ranks.
        pp_group: the process group of the ``pp`` mesh dimension, None without one.

    Raises:
        UsageError: PPC002 for a schedule that splits the backward, PPC003 if the batch does not
            fit the schedule.
    """
    degree = parallelism.pipeline_parallel_degree
    if degree == 1:
        return ScheduleTable(
            name=_NO_PIPELINE,
            csv=None,
            microbatches=1,
            microbatch_size=local_batch_size,
            stages_of_rank=((0,),),
            actions=(("0F0", "0B0"),),
        )
    size = parallelism.pipeline_parallel_microbatch_size
    check_microbatches(local_batch_size, size, stages)
    name = parallelism.pipeline_parallel_schedule
    placement = tuple(
        private_titan.stages_of_rank(rank, degree, name, stages) for rank in range(degree)
    )
    order = _order(name, local_batch_size // size, stages, placement, pp_group)
    _check_kinds(name, order)
    return ScheduleTable(
        name=name,
        csv=None,
        microbatches=local_batch_size // size,
        microbatch_size=size,
        stages_of_rank=placement,
        actions=order,
    )


def check_microbatches(local_batch_size: int, microbatch_size: int, stages: int) -> None:
    """Refuse a batch that cannot be cut into enough microbatches.

    Raises:
        UsageError: PPC003.
    """
    if microbatch_size < 1 or local_batch_size % microbatch_size != 0:
        raise UsageError(
            "PPC003",
            "the local batch cannot be cut into whole microbatches",
            expected="training.local_batch_size as a multiple of "
            "parallelism.pipeline_parallel_microbatch_size",
            found=f"local batch {local_batch_size}, microbatch {microbatch_size}",
            hint="change one of the two",
        )
    count = local_batch_size // microbatch_size
    if count < stages:
        raise UsageError(
            "PPC003",
            "there are fewer microbatches than stages",
            expected=f"at least {stages} microbatches",
            found=f"{count} (local batch {local_batch_size} / microbatch {microbatch_size})",
            hint="raise --training.local_batch_size or lower "
            "--parallelism.pipeline_parallel_microbatch_size",
        )


def _order(
    name: str, microbatches: int, stages: int, placement: tuple[tuple[int, ...], ...], pp_group: Any
) -> tuple[tuple[str, ...], ...]:
    """Ask torch's schedule class, with stand-in stages that never run."""
    schedule_class = private_titan.get_schedule_class(name)
    mine = placement[torch.distributed.get_rank(pp_group)]
    meta = torch.empty(1, device="meta")
    stand_ins = [
        PipelineStage(
            nn.Identity(),
            index,
            stages,
            torch.device("cpu"),
            input_args=meta,
            output_args=meta,
            group=pp_group,
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
    order = private_titan.compute_order(schedule) or {}
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


def _kind(text: str) -> str:
    """Return an action's kind; two actions overlapped (``(0F1;1B0)OVERLAP_F_B``) are a kind too."""
    return text.rpartition(")")[2] if text.startswith("(") else Action.parse(text).kind


def _check_kinds(name: str, order: tuple[tuple[str, ...], ...]) -> None:
    kinds = {_kind(text) for actions in order for text in actions}
    split = kinds & _WITHOUT_PROGRAM
    if split:
        raise UsageError(
            "PPC002",
            f"the schedule {name} computes input and weight gradients apart, or overlaps actions",
            expected="a schedule with whole backward actions: GPipe, 1F1B, Interleaved1F1B, "
            "LoopedBFS",
            found=f"actions of kind {', '.join(sorted(split))}",
            hint="choose another --parallelism.pipeline_parallel_schedule",
        )
