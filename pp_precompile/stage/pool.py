"""Worker processes that compile programs, and a thread for each that waits for its answers.

Which program goes to which worker has no influence on its bytes. A worker that dies takes only its
own program with it: the thread that waited for it raises an error that names the program.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from pp_precompile.contract.errors import CompileError, PrecompileError, Where
from pp_precompile.stage import worker
from pp_precompile.stage.surroundings import Surroundings
from pp_precompile.stage.worker import Compiled, Task

T = TypeVar("T")

_GRACE_SECONDS = 3.0
"""How long a process may take to end after it was told to, before it is killed."""


class Worker:
    """One worker process, used by one thread at a time."""

    def __init__(self, threads: int) -> None:
        """Start it; ``threads`` is how many kernels it compiles at a time."""
        # Never a fork: torch has threads by now, and their locks would be copied as they are.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=worker.main, args=(theirs, threads), daemon=True)
        self._process.start()
        theirs.close()
        self._surroundings: Surroundings | None = None

    def compile(self, task: Task, surroundings: Surroundings) -> Compiled:
        """Compile a program.

        Raises:
            CompileError: PPC302 if it does not compile, or if the process ends meanwhile.
        """
        self.enter(surroundings, task.where)
        compiled: Compiled = self._ask(task, task.where)
        return compiled

    def enter(self, surroundings: Surroundings, where: Where | None = None) -> None:
        """Make the process like this one, unless it is already.

        Raises:
            CompileError: PPC302 or PPC304 if it cannot be, ``where`` is for.
        """
        if self._surroundings is not surroundings:
            self._ask(surroundings, where or Where())
            self._surroundings = surroundings

    def _ask(self, request: Any, where: Where) -> Any:
        try:
            self._connection.send(request)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended(where) from error
        if isinstance(answer, PrecompileError):
            raise answer
        return answer

    def _ended(self, where: Where) -> CompileError:
        self._process.join(_GRACE_SECONDS)
        code = self._process.exitcode
        how = "itself" if code is None else f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {-code} ({signal.Signals(-code).name})"
        return CompileError(
            "PPC302",
            "the process that compiled the program is gone",
            where=where,
            expected="a worker process that answers",
            found=f"an end by {how}",
            hint="SIGKILL often means that memory ran out: each of the --jobs needs its own. What "
            "was compiled before is stored, and the same command goes on from there",
        )

    def close(self) -> None:
        """Let an idle process end by itself."""
        self._connection.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and to the compilers that it runs."""
        pid = self._process.pid
        assert pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        # Before it has a group of its own, it runs no compilers.
        if self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def join(self, seconds: float) -> bool:
        """Wait for the process; returns whether it has ended."""
        self._process.join(max(seconds, 0.0))
        return self._process.exitcode is not None


class Pool:
    """``jobs`` worker processes, from entering the context to leaving it.

    They start at once: importing torch takes them seconds, in which this process traces.
    """

    def __init__(self, jobs: int) -> None:
        """Say how many processes there will be."""
        self._jobs = jobs
        self._workers: list[Worker] = []
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="program")

    def __enter__(self) -> "Pool":
        threads = compiler_threads(self._jobs)
        for _ in range(self._jobs):
            self._workers.append(Worker(threads))
            self._idle.put(self._workers[-1])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all processes: those that are idle by themselves, at once if one is at work."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if kind is None and self._idle.qsize() == self._jobs:
            for each in self._workers:
                each.close()
        else:
            self._signal_all(signal.SIGTERM)
        end = time.monotonic() + _GRACE_SECONDS
        if not all(each.join(end - time.monotonic()) for each in self._workers):
            self._signal_all(signal.SIGKILL)
            for each in self._workers:
                each.join(_GRACE_SECONDS)
        self._threads.shutdown(wait=True)

    def _signal_all(self, number: signal.Signals) -> None:
        for each in self._workers:
            each.signal(number)

    def warm_up(self, surroundings: Surroundings) -> None:
        """Let every worker import what it needs, while this process goes on."""
        for _ in range(self._jobs):
            self.submit(lambda idle: idle.enter(surroundings))

    def submit(self, work: Callable[[Worker], T]) -> "Future[T]":
        """Call ``work`` with an idle worker, in a thread, in the order of submission."""

        def run() -> T:
            idle = self._idle.get()
            try:
                return work(idle)
            finally:
                self._idle.put(idle)

        return self._threads.submit(run)


def compiler_threads(jobs: int) -> int:
    """Return how many kernels each of ``jobs`` workers compiles at a time.

    Twice as many in all as there are cores: a worker without kernels to compile leaves its cores to
    the others.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, 2 * cores // jobs))
