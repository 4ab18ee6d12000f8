"""Constants of a traced graph as operations.

A number that meets a tensor in place, as in ``labels[mask] = 0``, is traced as a tensor that hangs
on the graph's module. Inductor would make such tensors further inputs of the compiled program
(torch 2.14), which nobody could bind by name; an operation that fills a tensor needs none.
"""

import torch
from torch import fx

from pp_precompile.contract.errors import CompileError


def inline_constants(graph: fx.GraphModule) -> None:
    """Replace every constant tensor of one element by an operation (in place).

    Raises:
        CompileError: PPC304 for a constant with more elements.
    """
    for node in list(graph.graph.nodes):
        if node.op != "get_attr":
            continue
        value = getattr(graph, str(node.target))
        if not isinstance(value, torch.Tensor):
            continue
        if value.numel() != 1:
            raise CompileError(
                "PPC304",
                "the traced program holds a constant tensor",
                expected="constants of one element; others as parameters or buffers",
                found=f"{node.target}: {value.dtype!s}{list(value.shape)}",
                hint="register it as a buffer of the model",
            )
        _fill(graph.graph, node, value)
    graph.recompile()


def _fill(graph: fx.Graph, node: fx.Node, value: torch.Tensor) -> None:
    arguments = (list(value.shape), value.item())
    with graph.inserting_before(node):
        filled = graph.call_function(
            torch.ops.aten.full.default,
            arguments,
            {"dtype": value.dtype, "device": value.device, "pin_memory": False},
        )
    filled.meta["val"] = node.meta.get("val", torch.empty_like(value))
    node.replace_all_uses_with(filled)
    graph.erase_node(node)
