"""When every action of a step begins and ends, if actions take the times that are given.

Each rank runs its actions in order, each as soon as it is done with the one before and all that
the action waits for has arrived. Overlapped actions run one after the other, as torch runs them.
Communication takes no time on the ranks themselves: receives are posted long before, and sends are
not waited for. Where a schedule writes it out, it is left out here.

Time and memory grow with the number of actions, of which there may be a million.
"""

from collections import defaultdict
from dataclasses import dataclass

import msgspec

from pp_precompile.contract.schedule import ScheduleTable, parse_actions
from pp_precompile.graph.communication import transfers
from pp_precompile.graph.times import UNIT_TIMES, Times
from pp_precompile.graph.timetable import COMPUTE, Place, Timetable, timetable


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A step: ``starts[rank][position]`` and ``ends`` are times of the action at a place.

    ``table`` holds computations only. Times count from the begin of the step.
    """

    table: Timetable
    starts: tuple[list[float], ...]
    ends: tuple[list[float], ...]

    @property
    def step(self) -> float:
        """Time from the begin of a step to the end of its last action."""
        return max((ends[-1] for ends in self.ends if ends), default=0)

    def busy(self, rank: int) -> float:
        """Return the time that ``rank`` computes."""
        pairs = zip(self.starts[rank], self.ends[rank], strict=True)
        return sum(end - start for start, end in pairs)


def simulate(schedule: ScheduleTable, times: Times = UNIT_TIMES) -> Simulation:
    """Run ``schedule`` once in thought.

    Raises:
        ValueError: if the schedule waits for itself.
        UsageError: PPC007 if ``times`` lacks the time of an action.
    """
    table = computations(schedule)
    run = _Run(table, times)
    run.to_the_end()
    return Simulation(table=table, starts=tuple(run.starts), ends=tuple(run.ends))


def computations(schedule: ScheduleTable) -> Timetable:
    """Take a schedule apart without its communication."""
    actions = tuple(
        tuple(text for text in texts if parse_actions(text)[0].kind in COMPUTE)
        for texts in schedule.actions
    )
    return timetable(msgspec.structs.replace(schedule, actions=actions))


class _Run:
    """Ranks that go on until each waits; ``ends[rank]`` has as many items as it has done."""

    def __init__(self, table: Timetable, times: Times) -> None:
        self.starts: list[list[float]] = [[] for _ in table.ranks]
        self.ends: list[list[float]] = [[] for _ in table.ranks]
        self._table, self._times = table, times
        self._waiting: dict[Place, list[Place]] = defaultdict(list)
        self._missing: dict[Place, int] = defaultdict(int)
        self._arrived: dict[Place, float] = {}
        for start, end in transfers(table):
            self._waiting[start].append(end)
            self._missing[end] += 1

    def to_the_end(self) -> None:
        can_go = list(range(len(self._table.ranks)))
        while can_go:
            can_go += self._go(can_go.pop())
        done = zip(self.ends, self._table.ranks, strict=True)
        if any(len(ends) < len(actions) for ends, actions in done):
            raise ValueError("the schedule waits for itself")

    def _go(self, rank: int) -> set[int]:
        """Run actions of ``rank`` until it waits or is done; return whom it sent something."""
        starts, ends, reached = self.starts[rank], self.ends[rank], set()
        actions = self._table.ranks[rank]
        while len(ends) < len(actions):
            place = (rank, len(ends))
            if self._missing.get(place):
                break
            action = actions[len(ends)]
            start = max(ends[-1] if ends else 0, self._arrived.pop(place, 0))
            end = start + self._times.of(action.stage, action.kind)
            starts.append(start)
            ends.append(end)
            for other in self._waiting.pop(place, ()):
                self._missing[other] -= 1
                apart = other[0] != rank
                arrival = end + self._times.communication if apart else end
                self._arrived[other] = max(arrival, self._arrived.get(other, 0))
                if apart:
                    reached.add(other[0])
        return reached
