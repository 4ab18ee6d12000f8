"""Compile a traced program to bytes, under one fixed set of compiler switches."""

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx

from pp_precompile.contract import encoding
from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.errors import CompileError, PrecompileError, Where
from pp_precompile.contract.program import ProgramBlob
from pp_precompile.stage import kernels, private_pickler, private_torch
from pp_precompile.stage.counters import counters

SWITCHES: dict[str, Any] = {
    # Generated C++ otherwise depends on this process's thread count: it sizes buffers by it, and
    # crashes under another. Serial kernels are also the faster ones with one thread a rank, which
    # is torchrun's default, and their sums come in one order whatever the number of threads.
    # (Inductor's other way out, dynamic_threads, with one thread at compile time divided a loss
    # once per thread at run time: a region was parallel that the generator took for serial.)
    "cpp.threads": 1,
    "cpp.dynamic_threads": False,
}
"""Inductor settings that make programs independent of the process that compiles them."""


Make = Callable[[fx.GraphModule], bytes]
"""Compiles a canonical graph, and returns the bytes that a program is loaded from."""


def compiler_factors() -> dict[str, str]:
    """Return what steers the compiler, as key factors: every Inductor setting that reaches code."""
    import torch._inductor.config as inductor

    with _switches():
        settings: Mapping[str, Any] = inductor.save_config_portable()
    text = json.dumps(settings, sort_keys=True, default=repr)
    return {"compiler.inductor_config": digest_bytes(text.encode())}


def compile_program(graph: fx.GraphModule, where: Where, make: Make | None = None) -> ProgramBlob:
    """Compile a canonical graph with ``make``, whole with Inductor if it is None.

    Raises:
        CompileError: PPC302 with the compiler's own error.
    """
    return compile_packed(pack(graph, where), where, make)


def pack(graph: fx.GraphModule, where: Where) -> bytes:
    """Return a canonical graph as :func:`compile_packed` takes it, here or in another process.

    Raises:
        CompileError: PPC302 for a graph that cannot be packed.
    """
    try:
        return private_pickler.pack_graph(graph)
    except Exception as error:
        raise _failed(error, where) from error


def compile_packed(packed: bytes, where: Where, make: Make | None = None) -> ProgramBlob:
    """Compile a graph that was packed by this process or its parent.

    Raises:
        CompileError: PPC302 with the compiler's own error.
    """
    counters.compiled += 1
    try:
        with _switches(), _quiet(), kernels.record() as recorder:
            compile_graph = make or private_torch.compile_artifact
            code = compile_graph(private_pickler.unpack_graph(packed))
            compiled = recorder.kernels()
    except PrecompileError:
        raise
    except Exception as error:
        raise _failed(error, where) from error
    return ProgramBlob(code=code, kernels=compiled)


def _failed(error: Exception, where: Where) -> CompileError:
    return CompileError(
        "PPC302",
        f"the program could not be compiled: {type(error).__name__}: {error}",
        where=where,
        expected="a working C++ compiler (or Triton, on a GPU) on the machine that builds",
        hint="check that g++ and strip work here; only building needs them, loading does not",
    )


def to_bytes(blob: ProgramBlob) -> bytes:
    """Return the canonical encoding of a compiled program."""
    return encoding.encode(blob)


@contextlib.contextmanager
def _switches() -> Iterator[None]:
    import torch._inductor.config as inductor

    with inductor.patch(SWITCHES):
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Inductor's advice for interactive use out of a build's output."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield
