"""The schedule can run to its end: no ring of actions that wait for each other."""

from collections.abc import Iterator

import networkx as nx

from pp_precompile.contract.errors import Where
from pp_precompile.graph.dependency import Node
from pp_precompile.graph.finding import Finding
from pp_precompile.graph.timetable import Timetable, describe_cell

_MOST = 12
"""Most actions of a ring that are printed."""


def check_acyclic(graph: nx.DiGraph, timetable: Timetable) -> Iterator[Finding]:
    """Yield PPC524 with the shortest ring through one of its actions, in the order of waiting."""
    if nx.is_directed_acyclic_graph(graph):
        return
    ring = _ends_of_runs(_ring(graph))
    places = [(rank, int(position)) for _, rank, position in ring]
    # A cell of two actions is entered at one and left at the other.
    texts = list(dict.fromkeys(describe_cell(timetable, place) for place in places))
    shown = texts[:_MOST] + (["…"] if len(texts) > _MOST else []) + texts[:1]
    yield Finding(
        code="PPC524",
        message="the schedule waits for itself: every rank in the ring waits for the one before",
        where=Where(rank=ring[0][1], field="schedule.actions"),
        expected="an order in which each action comes after all that it needs",
        found=" → ".join(shown),
        hint="exchange two of these actions of one rank, or build with a schedule that torch makes",
    )


def _ring(graph: nx.DiGraph) -> list[Node]:
    """Return a short cycle of actions; only actions can be on one, and all on it are connected."""
    knot = next(c for c in nx.strongly_connected_components(graph) if len(c) > 1)
    inside = graph.subgraph(knot).copy()
    start = min(knot)
    paths = [nx.shortest_path(inside, start, end) for end in inside.predecessors(start)]
    return min(paths, key=len)


def _ends_of_runs(ring: list[Node]) -> list[Node]:
    """Keep the first and last action of each run on one rank: those between only stand in line."""
    kept = []
    for index, node in enumerate(ring):
        before, after = ring[index - 1], ring[(index + 1) % len(ring)]
        if not (_in_line(before, node) and _in_line(node, after)):
            kept.append(node)
    return kept


def _in_line(one: Node, other: Node) -> bool:
    """A ring may lie on one rank: with two stages there, one can wait for the other."""
    return one[1] == other[1] and int(one[2]) < int(other[2])
