"""The dependency graph of a build: what must be there or done before what.

An edge leads from what comes first to what needs it::

    program (i, unshard)        → value (i, unsharded)  → programs of stage i that take it
    program (i, forward)        → value (i, outputs)    → program (i+1, forward)
    program (i, forward)        → value (i, saved)      → program (i, backward), or its two parts
    program (i, backward_input) → value (i, deferred)   → program (i, backward_weight)
    program (i+1, backward)     → value (i+1, gradients)→ program (i, backward)
    program (i, backward)       → value (i, unsharded_gradient) → program (i, reduce_grad)
    program (last, forward)     → value (last, outputs) → program (last, loss)
    program (last, loss)        → value (last, loss)    → program (last, backward)
    program (stage, role)       → action that runs it
    action (rank, position)     → action (rank, position + 1)
    send, or what produces      → receive, or what consumes (communication.transfers)

For ``backward`` read ``backward_input`` as well where gradients of outputs and arguments are meant,
``backward_weight`` where those of parameters are. Where a stage runs by blocks, each of them stands
for a stage here, with programs and values called ``layers.3 forward``; nothing leads to or from
modules that run eagerly. It is built from the manifest alone. A program node has ``stored=False``
if an action needs a program that the build does not hold.
"""

from collections.abc import Iterable, Iterator

import networkx as nx

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import Kind
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph import tensors
from pp_precompile.graph.communication import transfers
from pp_precompile.graph.conventions import INPUTS, OUTPUTS
from pp_precompile.graph.loss import has_loss
from pp_precompile.graph.parts import Part, links, parts, parts_of
from pp_precompile.graph.roles import gradients, role_of
from pp_precompile.graph.timetable import Place, Timetable

Node = tuple[str, int, int | str]
"""``("program", stage, role)``, ``("value", stage, name)`` or ``("action", rank, position)``."""

Edge = tuple[Node, Node]

_HANDED: tuple[Kind, ...] = ("unsharded", "saved", "deferred", "unsharded_gradient")
"""What programs of one stage hand to each other (``handover.py``)."""


def dependency_graph(manifest: Manifest, timetable: Timetable) -> nx.DiGraph:
    """Return the graph of ``manifest``; its schedule was taken apart as ``timetable``."""
    graph = nx.DiGraph()
    graph.add_nodes_from(
        (("program", stage.index, name), {"stored": True})
        for stage in manifest.stages
        for name, _ in stage.all_programs
    )
    graph.add_edges_from(_values(manifest))
    graph.add_edges_from(_needs(manifest, timetable))
    graph.add_edges_from(action_edges(timetable))
    return graph


def action_edges(timetable: Timetable) -> Iterator[Edge]:
    """Yield the edges between actions: in line on one rank, and from what another waits for."""
    for rank, actions in enumerate(timetable.ranks):
        for position in range(len(actions) - 1):
            yield ("action", rank, position), ("action", rank, position + 1)
    for start, end in transfers(timetable):
        yield ("action", *start), ("action", *end)


def missing_programs(graph: nx.DiGraph) -> dict[tuple[int, str], list[Node]]:
    """Return the programs that something needs and the build lacks, each with what needs it."""
    return {
        (node[1], node[2]): list(graph.successors(node))
        for node, data in graph.nodes(data=True)
        if node[0] == "program" and not data.get("stored")
    }


def _values(manifest: Manifest) -> Iterator[Edge]:
    for part in parts(manifest):
        yield _program(part, "forward"), _value(part, "outputs")
        for kind in _HANDED:
            makers, takers = _programs(part, kind, outputs=True), _programs(part, kind)
            yield from _through(makers, _value(part, kind), takers)
    for before, after in links(manifest):
        yield _value(before, "outputs"), _program(after, "forward")
        makers = (
            node
            for node in _programs(after, "argument_gradient", outputs=True)
            if node[2] != "loss"
        )
        value = _value(after, "gradients")
        yield from _through(makers, value, _programs(before, "tangent"))
    yield from _of_loss(manifest.stages[-1])


def _of_loss(last: StageRecord) -> Iterator[Edge]:
    if "loss" in last.programs:
        loss: Node = ("program", last.index, "loss")
        yield ("value", last.index, "outputs"), loss
        yield loss, ("value", last.index, "loss")
        part = Part(last.index, last)
        yield from ((("value", last.index, "loss"), node) for node in _programs(part, "tangent"))


def _through(makers: Iterable[Node], value: Node, takers: Iterable[Node]) -> Iterator[Edge]:
    """Yield the edges through ``value``, if anything makes it and anything takes it."""
    made, taken = list(makers), list(takers)
    if made and taken:
        yield from ((maker, value) for maker in made)
        yield from ((value, taker) for taker in taken)


def _programs(part: Part, kind: Kind, *, outputs: bool = False) -> Iterator[Node]:
    """Yield the programs of ``part`` with inputs (or outputs) of a kind that they may have."""
    allowed = OUTPUTS if outputs else INPUTS
    for role, program in part.record.programs.items():
        # What it is made of are programs as well: with it, values would need themselves.
        if (
            role != "overlap"
            and kind in allowed[role]
            and tensors.by_name(program, kind, outputs=outputs)
        ):
            yield _program(part, role)


def _program(part: Part, role: str) -> Node:
    return "program", part.stage, part.named(role)


def _value(part: Part, name: str) -> Node:
    return "value", part.stage, part.named(name)


def _needs(manifest: Manifest, timetable: Timetable) -> Iterator[Edge]:
    last = len(manifest.stages) - 1
    yield from _once_a_step(manifest, timetable)
    have = [[(part, gradients(part.record)) for part in parts_of(s)] for s in manifest.stages]
    with_loss = has_loss(manifest)
    for rank, actions in enumerate(timetable.ranks):
        for position, action in enumerate(actions):
            stage, kind = action.stage, action.kind
            if stage > last:
                continue
            for part, has in have[stage]:
                role = role_of(kind, *has)
                if role is not None and role not in _ONCE_A_STEP:
                    yield _program(part, role), ("action", rank, position)
            if stage == last and kind == "F" and with_loss:
                yield ("program", stage, "loss"), ("action", rank, position)


_ONCE_A_STEP = ("unshard", "reduce_grad")


def _once_a_step(manifest: Manifest, timetable: Timetable) -> Iterator[Edge]:
    """Yield what gathering parameters and reducing gradients comes before and after.

    Most stages do both in their other programs. Of those that do not, each forward needs what is
    gathered, and the last action needs the program that reduces.
    """
    places: dict[tuple[int, str], list[Place]] = {}
    for (stage, kind, _), found in timetable.places.items():
        places.setdefault((stage, kind), []).extend(found)
    for record in manifest.stages:
        index, held, part = record.index, record.programs, Part(record.index, record)
        if "unshard" in held or any(_programs(part, "unsharded")):
            for place in (*places.get((index, "UNSHARD"), ()), *places.get((index, "F"), ())):
                yield ("program", index, "unshard"), ("action", *place)
        if "reduce_grad" in held or any(_programs(part, "unsharded_gradient", outputs=True)):
            computed = (*places.get((index, "B"), ()), *places.get((index, "W"), ()))
            for place in places.get((index, "REDUCE_GRAD")) or sorted(computed)[-1:]:
                yield ("program", index, "reduce_grad"), ("action", *place)
