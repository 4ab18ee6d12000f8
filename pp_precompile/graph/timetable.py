"""A schedule taken apart: what each rank does, and where each action stands.

Overlapped actions are two actions in one cell. Places count single actions, so that each has its
own; what people read names the cell as it was written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from pp_precompile.contract.schedule import Action, ScheduleTable, parse_actions

COMPUTE = ("F", "B", "I", "W")
"""Kinds that run a program once for each microbatch."""

COMMUNICATE = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")

Step = tuple[int, str, int | None]
"""Stage, kind, microbatch: what is done, whoever does it."""

Place = tuple[int, int]
"""Pipeline rank, and position in its order of single actions."""


class Cell(NamedTuple):
    """What was written as one: its text, its position on its rank, and its actions' positions."""

    text: str
    position: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """The actions of every pipeline rank, and the places of every step.

    ``cells[rank][position]`` is the cell that the action at a place stands in. ``owner`` maps
    a stage to its pipeline rank. ``written`` says that the schedule names its own sends and
    receives; they are derived from the forwards and backwards otherwise.
    """

    schedule: ScheduleTable
    ranks: tuple[tuple[Action, ...], ...]
    cells: tuple[tuple[Cell, ...], ...]
    places: Mapping[Step, list[Place]]
    owner: Mapping[int, int]
    written: bool

    @property
    def stages(self) -> int:
        """Number of stages over all ranks."""
        return len(self.owner)

    @property
    def microbatches(self) -> int:
        """How many microbatches are worth looking at: one beyond what all stages could do.

        A manifest may claim any number; time must not grow with a claim, but with the actions.
        """
        actions = sum(map(len, self.ranks))
        return min(self.schedule.microbatches, actions // max(1, self.stages) + 1)

    def place(self, stage: int, *kinds: str, microbatch: int | None) -> Place | None:
        """Return where the first of ``kinds`` that the schedule has for the microbatch stands."""
        for kind in kinds:
            places = self.places.get((stage, kind, microbatch))
            if places:
                return places[0]
        return None

    def cell(self, place: Place) -> Cell:
        """Return the cell that the action at ``place`` stands in."""
        rank, position = place
        return self.cells[rank][position]

    def neighbours(self) -> Iterator[tuple[int, int]]:
        """Yield every pair of stages that follow each other."""
        return ((stage, stage + 1) for stage in range(self.stages - 1))


def timetable(schedule: ScheduleTable) -> Timetable:
    """Take ``schedule`` apart.

    Raises:
        ValueError: for an action that is none; a manifest that was read has none of these.
    """
    ranks = tuple(
        tuple(action for text in texts for action in parse_actions(text))
        for texts in schedule.actions
    )
    places: dict[Step, list[Place]] = {}
    for rank, actions in enumerate(ranks):
        for position, action in enumerate(actions):
            step = (action.stage, action.kind, action.microbatch)
            places.setdefault(step, []).append((rank, position))
    return Timetable(
        schedule=schedule,
        ranks=ranks,
        cells=tuple(map(_cells, schedule.actions)),
        places=places,
        owner={s: rank for rank, held in enumerate(schedule.stages_of_rank) for s in held},
        written=_is_written(schedule, {kind for _, kind, _ in places}),
    )


def one_of_each(schedule: ScheduleTable) -> ScheduleTable:
    """Return ``schedule`` with the first action of each stage and kind, and no others.

    Which programs a stage needs depends on no more than that.
    """
    seen: set[tuple[int, str]] = set()

    def is_new(text: str) -> bool:
        steps = {(action.stage, action.kind) for action in parse_actions(text)}
        new = not steps <= seen
        seen.update(steps)
        return new

    actions = tuple(tuple(filter(is_new, texts)) for texts in schedule.actions)
    return msgspec.structs.replace(schedule, actions=actions)


def _cells(texts: Sequence[str]) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for position, text in enumerate(texts):
        first, count = len(cells), len(parse_actions(text))
        cells += [Cell(text, position, first, first + count - 1)] * count
    return tuple(cells)


def _is_written(schedule: ScheduleTable, kinds: set[str]) -> bool:
    """A file that has any communication has all of it; torch adds none to such a file."""
    return not kinds.isdisjoint(COMMUNICATE) or (
        schedule.csv is not None and not kinds <= set(COMPUTE)
    )


def describe(timetable: Timetable, place: Place) -> str:
    """Name an action and where it stands: ``2F0 (rank 2, position 0)``.

    One of two overlapped actions is named with the cell: ``2F1 in (2F1;2B0)OVERLAP_F_B (…)``.
    """
    rank, position = place
    action, cell = str(timetable.ranks[rank][position]), timetable.cell(place)
    inside = "" if action == cell.text else f"{action} in "
    return f"{inside}{describe_cell(timetable, place)}"


def describe_cell(timetable: Timetable, place: Place) -> str:
    """Name the cell that an action stands in: ``(2F1;2B0)OVERLAP_F_B (rank 2, position 1)``."""
    cell = timetable.cell(place)
    return f"{cell.text} (rank {place[0]}, position {cell.position})"
