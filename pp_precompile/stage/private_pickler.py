"""A traced graph as bytes, and back, through torch's private graph pickler.

Beside :mod:`private_torch` the only place that knows private parts of torch. Checked with torch
2.14.1 and 2.15.0.

What comes back is what a program's key covers (:mod:`structure`): operations, constants, and the
metadata of values. That two values shared one storage while they were traced is not kept, nor is
what an earlier compilation added to the symbols of data-dependent sizes. So the same graph compiles
to the same bytes in whichever process, and whatever was compiled before.
"""

import functools
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pp_precompile.stage import private_torch
from pp_precompile.stage.structure import KEPT_META


def pack_graph(graph: fx.GraphModule) -> bytes:
    """Return a canonical graph (:func:`structure.canonical_graph`) as bytes.

    Raises:
        Exception: of any kind, for a graph that holds what cannot be pickled.
    """
    from torch.fx._graph_pickler import Options

    # All operations are admitted: unlike torch's cache, who unpacks has imported what defines them.
    options = Options(ops_filter=None, node_metadata_key_filter=KEPT_META.__contains__)
    packed: bytes = _pickler().dumps(graph, options)
    return packed


def unpack_graph(data: bytes) -> fx.GraphModule:
    """Return the graph of :func:`pack_graph`, in a fake mode of its own.

    ``data`` is a pickle: it must come from this process or its parent.
    """
    from torch.fx._graph_pickler import GraphPickler

    with private_torch.fake_tracing() as mode:
        pass  # Only the mode is wanted, with the settings of tracing.
    graph: Any = GraphPickler.loads(data, mode)
    graph.recompile()
    return graph


_PROGRAM = "compiled_"
"""Begins the name under which a graph calls a compiled part of it."""


def pack_compiled(graph: fx.GraphModule) -> bytes:
    """Return a graph whose regions were compiled by ``regional_inductor`` as bytes (changes it).

    It calls the artifacts of its regions, all of it being one of them where Inductor compiled it
    whole, and computes what is left operation by operation. Artifacts are written as programs are
    that are one artifact (:func:`private_torch.compile_artifact`). No metadata is kept.

    Raises:
        Exception: of any kind, for a graph that holds what cannot be pickled.
    """
    from torch._inductor.standalone_compile import AOTCompiledArtifact
    from torch.fx._graph_pickler import Options

    programs: list[bytes] = []
    for node in list(graph.graph.nodes):
        artifact = getattr(node.target, "__wrapped__", None)
        if not isinstance(artifact, AOTCompiledArtifact):
            continue
        name = f"{_PROGRAM}{len(programs)}"
        programs.append(private_torch.serialize_artifact(artifact))
        with graph.graph.inserting_before(node):
            call = graph.graph.create_node("call_module", name, node.args, node.kwargs)
        node.replace_all_uses_with(call)
        graph.graph.erase_node(node)
    graph.meta.clear()
    options = Options(ops_filter=None, node_metadata_key_filter=lambda key: False)
    return private_torch.canonical_pickle((_pickler().dumps(graph, options), programs))


def unpack_compiled(code: bytes) -> private_torch.BoxedCallable:
    """Turn the bytes of :func:`pack_compiled` into a callable, without compiling.

    ``code`` is a pickle: whoever calls this has checked its digest first.
    """
    packed, programs = pickle.loads(code)
    graph = unpack_graph(packed)
    for number, program in enumerate(programs):
        # The generated code finds it as it would find a module, and calls it without hooks.
        call = _with_positions(private_torch.load_artifact(program))
        graph.__dict__[f"{_PROGRAM}{number}"] = call
    graph.graph.set_codegen(fx.graph._BoxedCodeGen())
    graph.recompile()
    return graph.forward


def _with_positions(program: private_torch.BoxedCallable) -> Callable[..., Any]:
    return lambda *inputs: program(list(inputs))


@functools.cache
def _pickler() -> Any:
    """Return the class; torch's is imported only when something is compiled, since it is large."""
    from torch._subclasses.fake_tensor import is_fake_tensor
    from torch.fx._graph_pickler import GraphPickler, _SymNodePickleData

    class Pickler(GraphPickler):
        def reducer_override(self, obj: Any) -> Any:
            if is_fake_tensor(obj) and _is_plain(obj):
                return _tensor, (_described(obj), self._unpickle_state)
            if isinstance(obj, torch.SymBool | torch.SymFloat):
                return _symbol, (type(obj).__name__, _SymNodePickleData(obj))
            return super().reducer_override(obj)

    return Pickler


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_conj() and not tensor.is_neg()


def _described(tensor: torch.Tensor) -> tuple[Any, ...]:
    size, stride = tuple(tensor.shape), tuple(tensor.stride())
    offset = tensor.storage_offset()
    return tensor.dtype, tensor.device, size, stride, offset, tensor.requires_grad


def _tensor(description: tuple[Any, ...], state: Any) -> torch.Tensor:
    dtype, device, size, stride, offset, requires_grad = description
    with state.fake_mode:
        if isinstance(offset, int) and offset == 0:
            tensor = torch.empty_strided(size, stride, dtype=dtype, device=device)
        else:
            last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
            whole = torch.empty((offset + last + 1,), dtype=dtype, device=device)
            tensor = whole.as_strided(size, stride, offset)
    return tensor.requires_grad_(requires_grad)


def _symbol(kind: str, data: Any) -> Any:
    """Return a symbolic truth value or number; torch's own pickler knows integers only."""
    return getattr(torch, kind)(data._to_sym_node())
