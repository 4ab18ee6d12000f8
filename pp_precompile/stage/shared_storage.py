"""Which saved values are the same memory: one a view of the other, or both of something else.

The partitioner saves what the backward takes, also in two shapes. The compiled program returns
views of one buffer for them, so that the second costs nothing; the manifest says so, and sizes
that are read from it are those of a run.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import torch
from torch import fx

from pp_precompile.contract.program import Value
from pp_precompile.stage.traced import TracedProgram

_AS_VIEWS = (torch.ops.aten._unsafe_view.default,)
"""What is no view by its schema, and compiled as one."""


def passed_through(graph: fx.GraphModule, inputs: Mapping[fx.Node, str]) -> dict[fx.Node, str]:
    """Map every node that only views an input to the input's name, the inputs themselves too."""
    aliases = dict(inputs)
    for node in graph.graph.nodes:
        if (
            isinstance(node.target, torch._ops.OpOverload)
            and node.target.is_view
            and len(node.all_input_nodes) == 1
            and node.all_input_nodes[0] in aliases
        ):
            aliases[node] = aliases[node.all_input_nodes[0]]
    return aliases


def with_shared_storage(forward: TracedProgram) -> TracedProgram:
    """Return ``forward`` with the alias ``saved:NAME`` for each saved value that is NAME's memory.

    NAME is the first such value. Only views of a whole tensor count.
    """
    first: dict[fx.Node, str] = {}
    outputs: list[Value] = []
    for value, node in forward.output_nodes():
        if value.kind == "saved" and value.alias is None and value.tensor is not None:
            name = first.setdefault(_root(node), value.name)
            if name != value.name:
                value = msgspec.structs.replace(value, alias=f"saved:{name}")
        outputs.append(value)
    return replace(forward, outputs=tuple(outputs))


def _root(node: fx.Node) -> fx.Node:
    """Return what ``node`` is a view of, as far as views have all its bytes."""
    while _is_view(node) and _bytes(node) == _bytes(node.all_input_nodes[0]):
        node = node.all_input_nodes[0]
    return node


def _is_view(node: fx.Node) -> bool:
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and (node.target.is_view or node.target in _AS_VIEWS)
        and len(node.all_input_nodes) == 1
    )


def _bytes(node: fx.Node) -> int | None:
    """Return the bytes of a tensor's elements; None if they depend on data."""
    value = node.meta["val"]
    elements = value.numel()
    return elements * value.itemsize if isinstance(elements, int) else None
