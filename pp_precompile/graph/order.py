"""Two schedules side by side: who runs what, and the first action in which they differ."""

from collections.abc import Iterator
from itertools import zip_longest

from pp_precompile.contract.errors import Where
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.finding import Finding

_HINT = "build with the job's schedule, or give the job the build's"


def first_difference(
    one: ScheduleTable, other: ScheduleTable
) -> tuple[int, int, str | None, str | None] | None:
    """Return (rank, position, action of one, action of the other) where they first differ.

    None if all ranks do the same in the same order. An order that ended has the action None.
    """
    for rank, (mine, theirs) in enumerate(zip_longest(one.actions, other.actions, fillvalue=())):
        if mine == theirs:
            continue
        for position, (a, b) in enumerate(zip_longest(mine, theirs)):
            if a != b:
                return rank, position, a, b
    return None


def check_schedule(stored: ScheduleTable, asked: ScheduleTable) -> Iterator[Finding]:
    """Yield PPC602 for the first way in which the stored schedule is not the one asked for."""
    if stored.name != asked.name or stored.csv != asked.csv:
        yield _differs("schedule.name", _named(asked), _named(stored))
    if stored.stages_of_rank != asked.stages_of_rank:
        yield _differs(
            "schedule.stages_of_rank", str(asked.stages_of_rank), str(stored.stages_of_rank)
        )
    difference = first_difference(stored, asked)
    if difference is not None:
        rank, position, mine, theirs = difference
        yield _differs(
            "schedule.actions",
            f"{theirs or 'no more actions'} (rank {rank}, position {position})",
            f"{mine or 'no more actions'} (rank {rank}, position {position})",
            rank=rank,
        )


def _named(schedule: ScheduleTable) -> str:
    return schedule.name + (f" from the file {schedule.csv}" if schedule.csv else "")


def _differs(field: str, expected: str, found: str, *, rank: int | None = None) -> Finding:
    return Finding(
        code="PPC602",
        message="the stored schedule is not the one that the job asks for",
        where=Where(rank=rank, field=field),
        expected=expected,
        found=found,
        hint=_HINT,
    )
