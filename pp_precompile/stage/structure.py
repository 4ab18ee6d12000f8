"""What a traced graph computes, apart from what its values are called.

The canonical copy of a graph has the same operations in the same order under names that follow
from their positions. Its key is a digest over operations, constants and tensor metadata, so that
stages that differ only in their parameters' names share one program, while a different epsilon,
dtype or stride gives another.
"""

import enum
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.errors import CompileError

KEPT_META = ("val", "original_aten", "tensor_meta", "autograd_backward")
"""Node metadata that Inductor reads. The rest holds module names and source paths."""


def canonical_graph(graph: fx.GraphModule) -> fx.GraphModule:
    """Copy ``graph`` under canonical names, without metadata that names modules or files."""
    copy = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for position, node in enumerate(graph.graph.nodes):
        copied = copy.node_copy(node, copies.__getitem__)
        copied.name = copy._graph_namespace.create_name(f"v{position}", None)
        if node.op == "placeholder":
            copied.target = copied.name
        copied.meta = {name: node.meta[name] for name in KEPT_META if name in node.meta}
        copied.stack_trace = None
        copies[node] = copied
    copy.lint()
    return fx.GraphModule(graph, copy)


def program_key(graph: fx.GraphModule, compiler: Mapping[str, str]) -> Digest:
    """Return the key of a canonical graph compiled under the ``compiler`` factors.

    Raises:
        CompileError: PPC304 for a constant in the graph that has no canonical form.
    """
    record = {"compiler": dict(compiler), "graph": list(_records(graph))}
    return digest_bytes(json.dumps(record, sort_keys=True).encode())


def _records(graph: fx.GraphModule) -> Iterator[list[Any]]:
    index: dict[fx.Node, int] = {}
    for node in graph.graph.nodes:
        index[node] = len(index)
        if node.op == "placeholder":
            yield ["input", _tensor(node.meta.get("val"))]
        elif node.op == "get_attr":
            yield ["constant", _constant(graph, str(node.target))]
        elif node.op == "output":
            yield ["output", _argument(node.args, index)]
        else:
            arguments = [_argument(node.args, index), _argument(node.kwargs, index)]
            yield [node.op, str(node.target), *arguments, _tensor(node.meta.get("val"))]


def _argument(value: Any, index: Mapping[fx.Node, int]) -> Any:
    if isinstance(value, fx.Node):
        return {"value": index[value]}
    if isinstance(value, list | tuple):
        return [_argument(item, index) for item in value]
    if isinstance(value, Mapping):
        return {"map": [[str(k), _argument(v, index)] for k, v in sorted(value.items())]}
    if isinstance(value, slice):
        return {"slice": [_argument(v, index) for v in (value.start, value.stop, value.step)]}
    if value is None or isinstance(value, bool | int | float | str):
        return [type(value).__name__, repr(value)]
    named = torch.dtype | torch.device | torch.layout | torch.memory_format | enum.Enum
    if isinstance(value, named | torch._ops.OpOverload | torch.SymInt):
        return [type(value).__name__, str(value)]
    raise CompileError(
        "PPC304",
        "the traced program holds a constant without a canonical form",
        expected="numbers, text, dtypes, devices and containers of them",
        found=f"{type(value).__module__}.{type(value).__qualname__}",
        hint="report this model: its programs cannot be told apart safely",
    )


def _tensor(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [
            str(value.dtype),
            value.device.type,
            [str(n) for n in value.shape],
            [str(n) for n in value.stride()],
            str(value.storage_offset()),
        ]
    if isinstance(value, list | tuple):
        return [_tensor(item) for item in value]
    return type(value).__name__


def _constant(graph: fx.GraphModule, target: str) -> Any:
    value: Any = graph
    for part in target.split("."):
        value = getattr(value, part)
    if isinstance(value, fx.GraphModule):
        return list(_records(value))
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return [_tensor(value), digest_bytes(data)]
    return _argument(value, {})
