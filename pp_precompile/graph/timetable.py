"""A schedule taken apart: what each rank does, and where each action stands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pp_precompile.contract.schedule import Action, ScheduleTable

COMPUTE = ("F", "B", "I", "W")
"""Kinds that run a program once for each microbatch."""

COMMUNICATE = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")

Step = tuple[int, str, int | None]
"""Stage, kind, microbatch: what is done, whoever does it."""

Place = tuple[int, int]
"""Pipeline rank, and position in its order."""


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """The actions of every pipeline rank, and the places of every step.

    ``owner`` maps a stage to its pipeline rank. ``written`` says that the schedule names its own
    sends and receives; they are derived from the forwards and backwards otherwise.
    """

    schedule: ScheduleTable
    ranks: tuple[tuple[Action, ...], ...]
    places: Mapping[Step, list[Place]]
    owner: Mapping[int, int]
    written: bool

    @property
    def stages(self) -> int:
        """Number of stages over all ranks."""
        return len(self.owner)

    @property
    def microbatches(self) -> int:
        """How many microbatches are worth looking at: one beyond what any rank could do.

        A manifest may claim any number; time must not grow with a claim.
        """
        return min(self.schedule.microbatches, max(map(len, self.ranks)) + 1)

    def place(self, stage: int, *kinds: str, microbatch: int | None) -> Place | None:
        """Return where the first of ``kinds`` that the schedule has for the microbatch stands."""
        for kind in kinds:
            places = self.places.get((stage, kind, microbatch))
            if places:
                return places[0]
        return None

    def neighbours(self) -> Iterator[tuple[int, int]]:
        """Yield every pair of stages that follow each other."""
        return ((stage, stage + 1) for stage in range(self.stages - 1))


def timetable(schedule: ScheduleTable) -> Timetable:
    """Take ``schedule`` apart.

    Raises:
        ValueError: for an action that is none; a manifest that was read has none of these.
    """
    ranks = tuple(tuple(map(Action.parse, texts)) for texts in schedule.actions)
    places: dict[Step, list[Place]] = {}
    for rank, actions in enumerate(ranks):
        for position, action in enumerate(actions):
            step = (action.stage, action.kind, action.microbatch)
            places.setdefault(step, []).append((rank, position))
    return Timetable(
        schedule=schedule,
        ranks=ranks,
        places=places,
        owner={s: rank for rank, held in enumerate(schedule.stages_of_rank) for s in held},
        written=any(kind in COMMUNICATE for _, kind, _ in places),
    )


def describe(timetable: Timetable, place: Place) -> str:
    """Name an action and where it stands: ``2F0 (rank 2, position 0)``."""
    rank, position = place
    return f"{timetable.ranks[rank][position]} (rank {rank}, position {position})"
