"""One process and several at a time in one store: operations a second, and the slowest one.

Each process is this module with arguments. It says that it is ready, then waits for a line before
each of its two phases and reports each as a line of JSON:

- publish: some blobs, its own ones, or the same as everybody's. After each it looks at one that
  somebody else may be writing at that moment: what comes out must be nothing or the whole. A look
  is no operation of its own, but does take part of the time that operations are counted in.
- read: each of those blobs, several times, in an order of its own.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from benchmarks.process import ROOT
from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.contract.program import BlobRef
from pp_precompile.store.fsck import check_store
from pp_precompile.store.store import Store, open_store

PHASES = {"publish": "publish, then look at another's", "read": "read"}
"""What the processes do, one after the other, all of them at once; with titles."""

READS = 8
"""How often each process reads each blob."""


class Load(NamedTuple):
    """How many blobs of how many bytes each process publishes, and whether all the same ones."""

    blobs: int
    size: int
    same: bool


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """So many processes, and by phase what they did in each repetition."""

    load: Load
    processes: int
    rates: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PHASES})
    """Operations a second, of all processes together."""
    slowest: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PHASES})
    """Seconds of the slowest operation of any process."""
    torn: list[int] = field(default_factory=list)
    glimpses: list[int] = field(default_factory=list)
    """How often a process saw a blob that another was just publishing or had published."""
    complete: list[bool] = field(default_factory=list)
    """Whether the store held each blob once, whole, and nothing else afterwards."""


def measure(crowd: Crowd, folder: Path) -> None:
    """Take one sample in an empty store, which is deleted afterwards."""
    workers = [_start(crowd, folder, index) for index in range(crowd.processes)]
    try:
        for worker in workers:
            _line(worker)
        reports = {name: _phase(workers) for name in PHASES}
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    for name, said in reports.items():
        _add(crowd, name, said)
    last = reports["read"]
    crowd.torn.append(sum(one["torn"] for one in last))
    crowd.glimpses.append(sum(one["glimpses"] for one in last))
    health = check_store(open_store(folder, create=False))
    expected = crowd.load.blobs * (1 if crowd.load.same else crowd.processes)
    crowd.complete.append(health.sound and (health.blobs, health.leftovers) == (expected, 0))
    shutil.rmtree(folder)


def _add(crowd: Crowd, phase: str, said: Sequence[dict[str, Any]]) -> None:
    operations = sum(len(one["seconds"]) for one in said)
    wall = max(one["end"] for one in said) - min(one["start"] for one in said)
    crowd.rates[phase].append(operations / wall)
    crowd.slowest[phase].append(max(max(one["seconds"]) for one in said))


def _start(crowd: Crowd, folder: Path, index: int) -> subprocess.Popen[str]:
    blobs, size, same = crowd.load
    numbers = [str(number) for number in (index, crowd.processes, blobs, size)]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.store_contention", str(folder), *numbers),
            "same" if same else "different",
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _phase(workers: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [json.loads(_line(worker)) for worker in workers]


def _line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError("a process of the contention benchmark ended; its error is above")
    return line


class Worker:
    """One process with what it saw."""

    def __init__(
        self, store: Store, index: int, processes: int, count: int, size: int, *, same: bool
    ) -> None:
        self._store = store
        self._own = _contents(0 if same else index, count, size)
        others = self._own if same else _contents((index + 1) % processes, count, size)
        # With blobs in common, the next one: another process may be ahead.
        self._others = [*others[1:], others[0]] if same else others
        self._order = list(range(count)) * READS
        Random(index).shuffle(self._order)
        self.torn = 0
        self.glimpses = 0
        """How many blobs of others were there when looked at."""

    def publish(self) -> Iterator[float]:
        """Publish every blob and yield what each took, in seconds."""
        for data, other in zip(self._own, self._others, strict=True):
            start = time.monotonic()
            self._store.blobs.put(data)
            yield time.monotonic() - start
            self.glimpses += self._look(other)

    def read(self) -> Iterator[float]:
        """Read blobs and yield what each took, in seconds."""
        refs = [_refer(data) for data in self._own]
        for number in self._order:
            start = time.monotonic()
            found = self._get(refs[number])
            yield time.monotonic() - start
            self.torn += found != self._own[number]

    def _look(self, data: bytes) -> bool:
        try:
            self.torn += self._get(_refer(data)) != data
        except StoreError as error:
            if error.code != "PPC203":
                raise
            return False
        return True

    def _get(self, ref: BlobRef) -> bytes | None:
        try:
            return self._store.blobs.get(ref)
        except CorruptError:
            return None


def _contents(owner: int, count: int, size: int) -> list[bytes]:
    chance = Random(f"{owner} {size}")
    return [chance.randbytes(size) for _ in range(count)]


def _refer(data: bytes) -> BlobRef:
    return BlobRef(digest=digest_bytes(data), size=len(data))


def main(root: str, index: str, processes: str, count: str, size: str, same: str) -> None:
    """Do both phases when told to."""
    store = open_store(Path(root), create=True)
    worker = Worker(store, int(index), int(processes), int(count), int(size), same=same == "same")
    print("ready", flush=True)
    for phase in (worker.publish, worker.read):
        if not sys.stdin.readline():
            return
        start = time.monotonic()
        seconds = list(phase())
        said = {"start": start, "end": time.monotonic(), "seconds": seconds, "torn": worker.torn}
        print(json.dumps({**said, "glimpses": worker.glimpses}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
