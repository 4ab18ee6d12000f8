"""Functional collectives in a traced graph."""

from typing import Any

import torch
from torch import fx

_C10D: Any = torch.ops._c10d_functional

_GATHERS = frozenset({_C10D.all_gather_into_tensor.default})

_REDUCTIONS = frozenset({_C10D.reduce_scatter_tensor.default, _C10D.all_reduce.default})


def is_gather(node: fx.Node) -> bool:
    """Tell whether ``node`` starts gathering a tensor from all ranks."""
    return node.target in _GATHERS


def is_reduction(node: fx.Node) -> bool:
    """Tell whether ``node`` starts summing (or the like) a tensor over all ranks."""
    return node.target in _REDUCTIONS


def is_wait(node: fx.Node) -> bool:
    """Tell whether ``node`` waits for a collective's result."""
    return bool(node.target == _C10D.wait_tensor.default)


def drop_unused_collectives(graph: fx.GraphModule) -> None:
    """Erase gathers whose result nobody uses (in place).

    DTensor leaves some behind, and graph cleaning keeps them, since a wait counts as an effect.
    Every rank runs the same program, so all of them leave it out together.
    """
    for node in reversed(graph.graph.nodes):
        if (is_gather(node) or is_wait(node)) and not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
