"""A schedule that is about to be simulated is complete, in order, and can run to its end."""

from collections.abc import Iterator

import networkx as nx

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.check import OF_TIMETABLE, limited
from pp_precompile.graph.cycles import check_acyclic
from pp_precompile.graph.dependency import action_edges
from pp_precompile.graph.finding import Finding
from pp_precompile.graph.refuse import refuse
from pp_precompile.graph.simulate import Simulation, simulate
from pp_precompile.graph.times import UNIT_TIMES, Times
from pp_precompile.graph.timetable import timetable


def simulated(schedule: ScheduleTable, times: Times = UNIT_TIMES, *, what: str) -> Simulation:
    """Simulate ``schedule`` after the checks that a build's schedule gets.

    Args:
        schedule: from a manifest or a file.
        times: how long its actions take.
        what: names it in an error, for example ``"the schedule of build 744e341f0949"``.

    Raises:
        StaleBuildError: with the code of what is wrong with it, PPC521 to PPC527.
        UsageError: PPC007 if ``times`` lacks the time of an action, or all that it has are 0.
    """
    refuse(limited(_incomplete(schedule)), what)
    try:
        simulation = simulate(schedule, times)
    except ValueError:
        refuse(_rings(schedule), what)
        raise
    if not any(simulation.busy(rank) for rank in range(len(simulation.table.ranks))):
        raise UsageError(
            "PPC007",
            f"no time passes in {what}",
            expected="a time above 0 for one action at least",
            found="0 for all of them",
            hint="correct the file of times; docs/plan.md describes it",
        )
    return simulation


def _incomplete(schedule: ScheduleTable) -> Iterator[Finding]:
    table = timetable(schedule)
    for check in OF_TIMETABLE:
        yield from check(table)
    if table.written:
        # Sends and receives can wait for each other where what they carry does not.
        yield from _rings(schedule)


def _rings(schedule: ScheduleTable) -> Iterator[Finding]:
    """Yield PPC524 with the ring; the graph takes long to make, so only if there may be one."""
    table = timetable(schedule)
    yield from check_acyclic(nx.DiGraph(action_edges(table)), table)
