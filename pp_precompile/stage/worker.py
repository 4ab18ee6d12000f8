"""The process that compiles programs for another one, which traces them.

It starts with a fresh interpreter, never as a fork, takes one request at a time, and does not
outlive its parent. Nothing heavy is imported here before that is made sure.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pp_precompile.contract.errors import CompileError, PrecompileError, Where

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pp_precompile.stage.surroundings import Surroundings


@dataclass(frozen=True, kw_only=True)
class Task:
    """A program to compile: a packed graph, and its place for errors."""

    graph: bytes
    where: Where


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A blob's bytes, with the number of kernels in it and the seconds that it took."""

    data: bytes
    kernels: int
    seconds: float


def main(requests: "Connection", threads: int) -> None:
    """Answer requests until the other end is closed.

    A request is :class:`Surroundings`, answered by None, or a :class:`Task`, answered by
    :class:`Compiled`; a failure is answered by a ``PrecompileError``.

    Args:
        requests: the connection to the parent.
        threads: how many kernels to compile at a time.
    """
    _end_with_parent()
    # Ctrl-C is for the parent, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
    import torch._inductor.compile_fx  # noqa: F401 - while the parent traces

    while True:
        try:
            request = requests.recv()
        except EOFError:
            return
        requests.send(_answer(request))


def _answer(request: "Surroundings | Task") -> Compiled | PrecompileError | None:
    try:
        if isinstance(request, Task):
            return _compile(request)
        request.enter()
    except PrecompileError as error:
        return error
    except Exception as error:
        return _failed(error)
    return None


def _compile(task: Task) -> Compiled:
    from pp_precompile.stage.compile import compile_packed, to_bytes

    start = time.perf_counter()
    blob = compile_packed(task.graph, task.where)
    data = to_bytes(blob)
    return Compiled(data=data, kernels=len(blob.kernels), seconds=time.perf_counter() - start)


def _failed(error: Exception) -> CompileError:
    return CompileError(
        "PPC302",
        f"a worker process could not be prepared: {type(error).__name__}: {error}",
        expected="a process that imports what this one has imported",
        hint="build with --jobs 1, which needs no other process",
    )


def _end_with_parent() -> None:
    """End this process, and the compilers that it runs, as soon as the parent is gone.

    They are a process group of their own, so that one signal reaches them all. SIGTERM, not
    SIGKILL: a C++ compiler then deletes the file that it was writing.
    """
    os.setpgid(0, 0)
    parent: Any = multiprocessing.parent_process()

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os.killpg(0, signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
