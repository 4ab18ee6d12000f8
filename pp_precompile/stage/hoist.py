"""Take the gathering of parameters and the reduction of gradients out of the microbatches.

simple_fsdp gathers each parameter in forward and again in backward, and reduces each gradient in
backward: in a pipeline, once for every microbatch. Here the collectives at the two ends become two
programs that run once a step: ``unshard`` gives gathered parameters to all microbatches, and
``reduce_grad`` reduces gradients that were summed over them. During a step a stage's parameters and
gradients are whole; between steps, and in the optimizer, they are sharded as ever.

What converts a parameter before it is gathered moves along. What converts a gradient before it is
reduced stays with the microbatch, so that sums are taken in the dtype that is reduced in.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from pp_precompile.contract.program import Kind, Role, Value
from pp_precompile.stage.collectives import is_gather, is_reduction, is_wait
from pp_precompile.stage.describe import describe
from pp_precompile.stage.own_gradients import own_gradients
from pp_precompile.stage.subgraph import subgraph
from pp_precompile.stage.traced import TracedProgram, without_unused

Chain = list[fx.Node]
"""Nodes of which each is computed from the one before alone."""


@dataclass(frozen=True, kw_only=True)
class _End:
    """One place where a graph gathers a parameter or reduces a gradient."""

    graph: fx.GraphModule
    source: fx.Node
    chain: Chain

    @property
    def result(self) -> fx.Node:
        """What the chain computes from its source."""
        return self.chain[-1]

    @property
    def signature(self) -> tuple[str, ...]:
        """What the chain does, apart from the names of its nodes."""
        previous, steps = self.source, [str(describe(self.source.meta["val"]))]
        for node in self.chain:
            arguments = fx.node.map_arg((node.args, node.kwargs), previous.__eq__)
            steps.append(f"{node.target} {arguments}")
            previous = node
        return tuple(steps)


def hoist(programs: Mapping[Role, TracedProgram]) -> dict[Role, TracedProgram]:
    """Return a stage's programs with ``unshard`` and ``reduce_grad`` beside them.

    The graphs are changed in place. A parameter that is gathered in different ways, and a gradient
    that is reduced in different ways or in the middle of a program, stay as they are; so does a
    stage in which nothing can be taken out.
    """
    aliases = {v.name: v.alias for v in programs["forward"].outputs if v.kind == "saved"}
    gathers = _alike(_gathers(p, aliases) for p in programs.values())
    reductions = _alike(_reductions(p) for p in programs.values())
    once: dict[Role, TracedProgram] = {}
    if gathers:
        once["unshard"] = _once("parameter", "unsharded", gathers)
    if reductions:
        once["reduce_grad"] = _once("unsharded_gradient", "parameter_gradient", reductions)
    taken = {role: _with_gathered(program, gathers) for role, program in programs.items()}
    taken = {role: _with_summed(program, reductions) for role, program in taken.items()}
    taken = _without_unused_saved(taken)
    return once | {role: _without_unused_parameters(program) for role, program in taken.items()}


def _gathers(
    program: TracedProgram, aliases: Mapping[str, str | None]
) -> Iterable[tuple[str, _End]]:
    """Yield every gather in ``program`` with the parameter that is gathered.

    ``aliases`` tells by name which saved values are parameters.
    """
    for value, node in program.input_nodes():
        alias = aliases.get(value.name) if value.kind == "saved" else None
        kind, _, name = (alias or f"{value.kind}:{value.name}").partition(":")
        if kind != "parameter":
            continue
        for chain in _forward_chains(node):
            yield name, _End(graph=program.graph, source=node, chain=chain)


def _forward_chains(node: fx.Node) -> Iterable[Chain]:
    """Yield each way from a parameter to the end of its gather."""
    for user in node.users:
        if user.all_input_nodes != [node] or user.op != "call_function":
            continue
        if is_gather(user):
            yield from ([user, wait] for wait in user.users if is_wait(wait))
        else:
            yield from ([user, *rest] for rest in _forward_chains(user))


def _reductions(program: TracedProgram) -> Iterable[tuple[str, _End]]:
    """Yield every reduction at the end of ``program`` with the parameter whose gradient it is."""
    for value, node in program.output_nodes():
        if value.kind != "parameter_gradient":
            continue
        chain: Chain = []
        longest = 0
        while node.op == "call_function" and len(node.all_input_nodes) == 1:
            chain.insert(0, node)
            if is_reduction(node):
                longest = len(chain)
            node = node.all_input_nodes[0]
        if longest:
            taken = chain[-longest:]
            source = taken[0].all_input_nodes[0]
            yield value.name, _End(graph=program.graph, source=source, chain=taken)


def _alike(found: Iterable[Iterable[tuple[str, _End]]]) -> dict[str, list[_End]]:
    """Return the ends by parameter, without those parameters that have different ones."""
    ends: dict[str, list[_End]] = collections.defaultdict(list)
    for name, end in itertools.chain.from_iterable(found):
        ends[name].append(end)
    return {name: items for name, items in ends.items() if len({i.signature for i in items}) == 1}


def _once(kind: Kind, result: Kind, ends: Mapping[str, list[_End]]) -> TracedProgram:
    """Return the program that does for every parameter what its ends have in common."""
    firsts = {name: items[0] for name, items in ends.items()}
    graph = _side_by_side(
        [subgraph(end.graph, [end.source], [end.result]) for end in firsts.values()]
    )
    own_gradients(graph)
    return TracedProgram(
        graph=graph,
        inputs=tuple(_value(kind, name, end.source) for name, end in firsts.items()),
        outputs=tuple(_value(result, name, end.result) for name, end in firsts.items()),
    )


def _side_by_side(parts: Sequence[fx.GraphModule]) -> fx.GraphModule:
    """Return one graph of several chains that takes a step of each in turn.

    So collectives start before the first one is waited for.
    """
    whole = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for step in itertools.zip_longest(*(part.graph.nodes for part in parts)):
        for node in step:
            if node is not None and node.op != "output":
                copies[node] = whole.node_copy(node, copies.__getitem__)
    whole.output(tuple(copies[part.graph.output_node().args[0][0]] for part in parts))
    whole.lint()
    return fx.GraphModule({}, whole)


def _with_gathered(program: TracedProgram, gathers: Mapping[str, list[_End]]) -> TracedProgram:
    """Let ``program`` take gathered parameters instead of gathering them."""
    graph = program.graph.graph
    added: list[Value] = []
    for name, ends in gathers.items():
        mine = [end for end in ends if end.graph is program.graph]
        if not mine:
            continue
        with graph.inserting_before(_first_operation(graph)):
            node = graph.placeholder(f"unsharded_{len(added)}")
        node.meta = {"val": mine[0].result.meta["val"]}
        added.append(_value("unsharded", name, node))
        for end in mine:
            end.result.replace_all_uses_with(node)
            _erase_unused(graph, end.chain)
    program.graph.recompile()
    return dataclasses.replace(program, inputs=(*program.inputs, *added))


def _with_summed(program: TracedProgram, reductions: Mapping[str, list[_End]]) -> TracedProgram:
    """Let ``program`` return gradients as they are before they are reduced."""
    mine = {
        name: end for name, ends in reductions.items() for end in ends if end.graph is program.graph
    }
    results = [
        (_value("unsharded_gradient", value.name, mine[value.name].source), mine[value.name].source)
        if value.kind == "parameter_gradient" and value.name in mine
        else (value, node)
        for value, node in program.output_nodes()
    ]
    _set_outputs(program.graph, [node for _, node in results])
    for end in mine.values():
        _erase_unused(program.graph.graph, end.chain)
    if mine:
        own_gradients(program.graph)
    return dataclasses.replace(program, outputs=tuple(value for value, _ in results))


def _without_unused_saved(programs: dict[Role, TracedProgram]) -> dict[Role, TracedProgram]:
    """Keep nothing for backward that it does not use any more: parameters before gathering."""
    if "backward" not in programs:
        return programs
    forward, backward = programs["forward"], programs["backward"]
    unused = {v.name for v, node in backward.input_nodes() if v.kind == "saved" and not node.users}
    results = [
        (value, node)
        for value, node in forward.output_nodes()
        if not (value.kind == "saved" and value.name in unused)
    ]
    _set_outputs(forward.graph, [node for _, node in results])
    return programs | {
        "forward": dataclasses.replace(forward, outputs=tuple(value for value, _ in results)),
        "backward": without_unused(backward, "saved"),
    }


def _without_unused_parameters(program: TracedProgram) -> TracedProgram:
    return without_unused(program, "parameter")


def _set_outputs(graph: fx.GraphModule, nodes: Sequence[fx.Node]) -> None:
    graph.graph.output_node().args = (tuple(nodes),)
    graph.recompile()


def _erase_unused(graph: fx.Graph, chain: Chain) -> None:
    for node in reversed(chain):
        # Two gathers of one parameter have the first steps in common.
        if not node.users and not node._erased:
            graph.erase_node(node)


def _first_operation(graph: fx.Graph) -> fx.Node:
    return next(node for node in graph.nodes if node.op != "placeholder")


def _value(kind: Kind, name: str, node: fx.Node) -> Value:
    return Value(kind=kind, name=name, tensor=describe(node.meta["val"]))
