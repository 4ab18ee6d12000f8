"""Copy a part of a graph into a graph of its own."""

from collections.abc import Iterable, Sequence

from torch import fx


def ancestors(nodes: Iterable[fx.Node], stop: Iterable[fx.Node] = ()) -> set[fx.Node]:
    """Return ``nodes`` and all that they are computed from, looking no further than ``stop``."""
    ends, found, stack = set(stop), set[fx.Node](), list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            if node not in ends:
                stack.extend(node.all_input_nodes)
    return found


def subgraph(
    graph: fx.GraphModule, inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]
) -> fx.GraphModule:
    """Return a graph that computes ``outputs`` from ``inputs``, in the order of ``graph``.

    Raises:
        ValueError: if an output needs an input of ``graph`` that is not among ``inputs``.
    """
    needed = ancestors(outputs, inputs)
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = part.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in graph.graph.nodes:
        if node in needed and node not in copies:
            if node.op == "placeholder":
                raise ValueError(f"the part needs the input {node}")
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(tuple(copies[node] for node in outputs))
    part.lint()
    return fx.GraphModule(graph, part)
