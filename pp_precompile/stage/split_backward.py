"""Cut a backward program in two: gradients of the inputs now, gradients of the weights later.

Zero-bubble schedules send the gradient of a stage's input upstream first and compute those of the
weights when the rank would otherwise wait (Qi et al., arXiv 2401.10241). Both parts are taken from
one backward graph, so that together they compute bit for bit what it computes: what both need is
computed once, in the first part, and handed over as ``deferred`` values.
"""

import operator

import torch
from torch import fx

from pp_precompile.contract.program import Value
from pp_precompile.stage.describe import describe
from pp_precompile.stage.own_gradients import own_gradients
from pp_precompile.stage.subgraph import ancestors, subgraph
from pp_precompile.stage.traced import TracedProgram


def split_backward(backward: TracedProgram) -> tuple[TracedProgram, TracedProgram]:
    """Return the programs ``backward_input`` and ``backward_weight``.

    ``backward`` has gradients of both kinds among its outputs. The second part takes those saved
    values and tangents that it needs itself, and the first one's deferred values.
    """
    results = backward.output_nodes()
    first = [(value, node) for value, node in results if value.kind == "argument_gradient"]
    second = [(value, node) for value, node in results if value.kind != "argument_gradient"]
    handed = _handed([node for _, node in first], [node for _, node in second])
    deferred = [
        (Value(kind="deferred", name=str(i), tensor=describe(node.meta["val"])), node)
        for i, node in enumerate(n for n in backward.graph.graph.nodes if n in handed)
    ]
    given = backward.input_nodes()
    return (
        _part(backward, given, first + deferred),
        _part(backward, given + deferred, second),
    )


def _handed(first: list[fx.Node], second: list[fx.Node]) -> set[fx.Node]:
    """Return what the second part needs of what the first part computes.

    A view is taken again in the second part from what it views, so that no memory is kept alive
    under two names.
    """
    of_first, of_second = ancestors(first), ancestors(second)
    alone = of_second - of_first
    edge = [n for n in of_first & of_second if n in second or not alone.isdisjoint(n.users)]
    handed: set[fx.Node] = set()
    while edge:
        node = edge.pop()
        if _is_view(node):
            edge.extend(node.all_input_nodes)
        elif not isinstance(node.meta["val"], torch.Tensor):
            # Several results of one operation: those that are needed.
            handed.update(user for user in node.users if user in of_second)
        elif node.op != "placeholder":
            handed.add(node)
    return handed


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.all_input_nodes[0])
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and node.target.is_view
        and len(node.all_input_nodes) == 1
    )


def _part(
    backward: TracedProgram,
    available: list[tuple[Value, fx.Node]],
    results: list[tuple[Value, fx.Node]],
) -> TracedProgram:
    """Return the part that computes ``results`` from as few of ``available`` as it needs."""
    outputs = [node for _, node in results]
    needed = ancestors(outputs, [node for _, node in available])
    inputs = [(value, node) for value, node in available if node in needed]
    graph = subgraph(backward.graph, [node for _, node in inputs], outputs)
    own_gradients(graph)
    return TracedProgram(
        graph=graph,
        inputs=tuple(value for value, _ in inputs),
        outputs=tuple(value for value, _ in results),
    )
