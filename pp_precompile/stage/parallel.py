"""Compile the programs of stages in worker processes, while later stages are still traced."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import Where
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.stage.compile import pack
from pp_precompile.stage.counters import counters
from pp_precompile.stage.pool import Pool, Worker
from pp_precompile.stage.programs import KeyedProgram, ProgramSink, Progress, TracedStage
from pp_precompile.stage.surroundings import Surroundings
from pp_precompile.stage.worker import Task

Place = tuple[int, str]
"""Stage and name of a program."""


def compile_stages_in(
    pool: Pool,
    surroundings: Surroundings,
    stages: Iterable[TracedStage],
    sink: ProgramSink,
    *,
    started: Callable[[int, str], None] = lambda stage, role: None,
    done: Callable[[Progress], None] = lambda progress: None,
) -> dict[Digest, ProgramEntry]:
    """Do what :func:`programs.compile_stages` does, with the same result, in worker processes.

    A program is handed over as soon as its stage was traced, and kept in ``sink`` as soon as it is
    compiled, so that a failure loses no more than what is in work. ``started`` and ``done`` are
    called from any thread, one at a time.

    Raises:
        CompileError: PPC302 if a program does not compile or its process ends; PPC304 if a worker
            cannot be made like this process. The first error counts; the caller ends the pool.
    """
    work = _Work(pool, surroundings, sink, started, done)
    for stage in stages:
        for role, program in stage.keyed:
            work.add((stage.source.index, role), program)
        work.check()
    return work.finish()


class _Work:
    """What was handed over, and who waits for it."""

    def __init__(
        self,
        pool: Pool,
        surroundings: Surroundings,
        sink: ProgramSink,
        started: Callable[[int, str], None],
        done: Callable[[Progress], None],
    ) -> None:
        self._pool = pool
        self._surroundings = surroundings
        self._sink = sink
        self._started = started
        self._done = done
        self._lock = threading.Lock()
        self._futures: list[Future[None]] = []
        self._entries: dict[Digest, ProgramEntry] = {}
        self._waiting: dict[Digest, list[Place]] = {}
        """Places whose program somebody else's place is responsible for, until it is there."""

    def add(self, place: Place, program: KeyedProgram) -> None:
        """Find a program, hand it over, or wait for it with the first place that needed it."""
        key = program.key
        with self._lock:
            if key in self._waiting:
                self._waiting[key].append(place)
                return
            entry = self._entries.get(key) or self._sink.find(key)
            if entry is not None:
                self._started(*place)
                self._entries[key] = entry
                self._reused(place, key)
                return
            self._waiting[key] = []
        where = Where(stage=place[0], program=place[1])
        # Here, not in the worker's thread: torch's pickler is not made for threads.
        task = Task(graph=pack(program.graph, where), where=where)
        self._futures.append(self._pool.submit(partial(self._make, place, key, task)))

    def check(self) -> None:
        """Raise the error of a program that failed meanwhile."""
        for future in self._futures:
            if future.done():
                future.result()

    def finish(self) -> dict[Digest, ProgramEntry]:
        """Wait for all, or for the first that fails, and return the entries by key."""
        wait(self._futures, return_when=FIRST_EXCEPTION)
        self.check()
        return self._entries

    def _make(self, place: Place, key: Digest, task: Task, worker: Worker) -> None:
        with self._lock:
            self._started(*place)
        compiled = worker.compile(task, self._surroundings)
        entry = self._sink.add(key, compiled.data, compiled.kernels)
        with self._lock:
            self._entries[key] = entry
            counters.compiled += 1
            self._report(*place, compiled.seconds, entry, reused=False)
            for other in self._waiting.pop(key):
                self._reused(other, key)

    def _reused(self, place: Place, key: Digest) -> None:
        counters.reused += 1
        self._report(*place, 0.0, self._entries[key], reused=True)

    def _report(
        self, stage: int, role: str, seconds: float, entry: ProgramEntry, *, reused: bool
    ) -> None:
        self._done(Progress(stage=stage, role=role, seconds=seconds, reused=reused, entry=entry))
