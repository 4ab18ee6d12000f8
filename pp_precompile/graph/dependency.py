"""The dependency graph of a build: what must be there or done before what.

An edge leads from what comes first to what needs it::

    program (i, forward)      → value (i, outputs)     → program (i+1, forward)
    program (i, forward)      → value (i, saved)       → program (i, backward)
    program (i+1, backward)   → value (i+1, gradients) → program (i, backward)
    program (last, forward)   → value (last, outputs)  → program (last, loss)
    program (last, loss)      → value (last, loss)     → program (last, backward)
    program (stage, role)     → action that runs it
    action (rank, position)   → action (rank, position + 1)
    send, or what produces    → receive, or what consumes (communication.transfers)

It is built from the manifest alone. A program node has ``stored=False`` if an action or a value
needs a program that the build does not hold.
"""

from collections.abc import Iterator

import networkx as nx

from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.communication import transfers
from pp_precompile.graph.timetable import Timetable

Node = tuple[str, int, int | str]
"""``("program", stage, role)``, ``("value", stage, name)`` or ``("action", rank, position)``."""

Edge = tuple[Node, Node]

ROLES_OF_KIND = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
    "UNSHARD": "unshard",
    "REDUCE_GRAD": "reduce_grad",
}
"""The program that an action of each kind runs. Where a stage has no program of its own for
UNSHARD and REDUCE_GRAD, forward and backward do that work themselves."""

_WITHIN = ("UNSHARD", "REDUCE_GRAD")


def dependency_graph(manifest: Manifest, timetable: Timetable) -> nx.DiGraph:
    """Return the graph of ``manifest``; its schedule was taken apart as ``timetable``."""
    graph = nx.DiGraph()
    graph.add_nodes_from(
        (("program", stage.index, role), {"stored": True})
        for stage in manifest.stages
        for role in stage.programs
    )
    graph.add_edges_from(_values(manifest))
    graph.add_edges_from(_order(timetable))
    graph.add_edges_from(_needs(manifest, timetable))
    graph.add_edges_from(
        (("action", *start), ("action", *end)) for start, end in transfers(timetable)
    )
    return graph


def missing_programs(graph: nx.DiGraph) -> dict[tuple[int, str], list[Node]]:
    """Return the programs that something needs and the build lacks, each with what needs it."""
    return {
        (node[1], node[2]): list(graph.successors(node))
        for node, data in graph.nodes(data=True)
        if node[0] == "program" and not data.get("stored")
    }


def _values(manifest: Manifest) -> Iterator[Edge]:
    last = len(manifest.stages) - 1
    for stage in manifest.stages:
        index = stage.index
        outputs, saved = ("value", index, "outputs"), ("value", index, "saved")
        yield ("program", index, "forward"), outputs
        if index < last:
            yield outputs, ("program", index + 1, "forward")
        if "backward" in stage.programs:
            yield ("program", index, "forward"), saved
            yield saved, ("program", index, "backward")
            if index > 0 and "backward" in manifest.stages[index - 1].programs:
                gradients = ("value", index, "gradients")
                yield ("program", index, "backward"), gradients
                yield gradients, ("program", index - 1, "backward")
        if index == last and "loss" in stage.programs:
            yield outputs, ("program", index, "loss")
            yield ("program", index, "loss"), ("value", index, "loss")
            if "backward" in stage.programs:
                yield ("value", index, "loss"), ("program", index, "backward")


def _order(timetable: Timetable) -> Iterator[Edge]:
    for rank, actions in enumerate(timetable.ranks):
        for position in range(len(actions) - 1):
            yield ("action", rank, position), ("action", rank, position + 1)


def _needs(manifest: Manifest, timetable: Timetable) -> Iterator[Edge]:
    trained = [_is_trained(manifest, index) for index in range(len(manifest.stages))]
    last = len(manifest.stages) - 1
    for rank, actions in enumerate(timetable.ranks):
        for position, action in enumerate(actions):
            stage, kind = action.stage, action.kind
            role = ROLES_OF_KIND.get(kind)
            if role is None or stage > last:
                continue
            if kind in _WITHIN and role not in manifest.stages[stage].programs:
                continue
            if kind not in ("B", "I", "W") or trained[stage]:
                yield ("program", stage, role), ("action", rank, position)
            if stage == last and kind == "F":
                yield ("program", stage, "loss"), ("action", rank, position)


def _is_trained(manifest: Manifest, index: int) -> bool:
    """Tell whether the stage has anything to compute in a backward: one that is frozen has not."""
    stage = manifest.stages[index]
    return any(item.tensor.requires_grad for item in (*stage.parameters, *stage.arguments))
