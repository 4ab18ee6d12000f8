"""How much of a step the ranks of a schedule wait, at unit times.

A forward, a gradient of the inputs and a gradient of the weights take one unit each, a whole
backward two; communication takes none, also where it is written out; overlapped actions run one
after the other, as torch runs them. That is enough to compare schedules, and no prediction of a
time.
"""

from fractions import Fraction

import msgspec
import networkx as nx

from pp_precompile.contract.schedule import ScheduleTable, parse_actions
from pp_precompile.graph.dependency import Node, action_edges
from pp_precompile.graph.timetable import Timetable, timetable

UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}
"""Units of time by kind of action."""


def bubble_fraction(schedule: ScheduleTable) -> Fraction:
    """Return the part of all ranks' time in a step in which they wait.

    Raises:
        ValueError: if the schedule waits for itself, or computes nothing.
    """
    table = _computations(schedule)
    work = sum(UNITS[action.kind] for actions in table.ranks for action in actions)
    if not work:
        raise ValueError("the schedule computes nothing")
    return 1 - Fraction(work, _step(table) * len(table.ranks))


def step_units(schedule: ScheduleTable) -> int:
    """Return the units of time from the first action of a step to the end of its last.

    Raises:
        ValueError: if the schedule waits for itself.
    """
    return _step(_computations(schedule))


def _computations(schedule: ScheduleTable) -> Timetable:
    """Take a schedule apart without its communication: receives are posted long before."""
    actions = tuple(
        tuple(text for text in texts if parse_actions(text)[0].kind in UNITS)
        for texts in schedule.actions
    )
    return timetable(msgspec.structs.replace(schedule, actions=actions))


def _step(table: Timetable) -> int:
    graph = nx.DiGraph()
    graph.add_nodes_from(
        ("action", rank, position)
        for rank, actions in enumerate(table.ranks)
        for position in range(len(actions))
    )
    graph.add_edges_from(action_edges(table))
    ends: dict[Node, int] = {}
    try:
        for node in nx.topological_sort(graph):
            _, rank, position = node
            begin = max((ends[before] for before in graph.predecessors(node)), default=0)
            ends[node] = begin + UNITS[table.ranks[rank][position].kind]
    except nx.NetworkXUnfeasible as error:
        raise ValueError("the schedule waits for itself") from error
    return max(ends.values(), default=0)
