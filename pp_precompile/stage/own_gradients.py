"""Give every gradient memory of its own.

Gradients are summed in place over microbatches. Two that share memory (one value returned for two
parameters, or a saved value returned unchanged) would be summed into each other.
"""

import torch
from torch import fx


def own_gradients(backward: fx.GraphModule) -> None:
    """Clone, in place of the graph, each result that shares memory with an input or another."""
    output = backward.graph.output_node()
    taken: set[fx.Node] = set()
    results = []
    for result in output.args[0]:
        is_tensor = isinstance(result, fx.Node) and isinstance(result.meta["val"], torch.Tensor)
        owner = _owner(result) if is_tensor else None
        if owner is not None and (owner.op == "placeholder" or owner in taken):
            with backward.graph.inserting_before(output):
                copy = backward.graph.call_function(torch.ops.aten.clone.default, (result,))
            copy.meta["val"] = result.meta["val"].clone()
            result = copy
        elif owner is not None:
            taken.add(owner)
        results.append(result)
    output.args = (tuple(results),)
    backward.recompile()


def _owner(node: fx.Node) -> fx.Node:
    """Return the node that allocated ``node``'s memory, looking through views."""
    while (
        isinstance(node.target, torch._ops.OpOverload)
        and (node.target.is_view or node.target in _MAY_ALIAS)
        and node.all_input_nodes
    ):
        node = node.all_input_nodes[0]
    return node


_MAY_ALIAS = {torch.ops.aten.reshape.default, torch.ops.aten.contiguous.default}
