"""Publish and load blobs of several sizes in several ways, next to each other.

The ways are this project's store, git's objects and plain files. All of them
read files whose pages are cached, and return from ``publish`` when the contents are on the disk.
What they do beyond that differs, and the numbers with it:

- the store hashes with sha256, syncs each blob and the folder it lies in, and hashes again at load;
- git hashes with its collision-detecting sha1 and compresses with zlib (level 0 still copies
  through zlib). It syncs each object, not the folder; what it reads is only held against zlib's
  own checksum, never against the object's name. One process serves all objects, over a pipe;
- a plain copy syncs each file, not the folder. It checks nothing and has no atomic rename.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from benchmarks.measure import rotated
from benchmarks.store_git import Repository
from pp_precompile.contract.program import BlobRef
from pp_precompile.store.store import open_store

STORE = "store"


class Way(Protocol):
    """One empty place for blobs."""

    def publish(self, paths: Sequence[Path]) -> None:
        """Take in the contents of ``paths``."""

    def load(self) -> list[bytes]:
        """Return everything that was published, in the same order."""


class StoreWay:
    """Blobs of this project's store."""

    def __init__(self, folder: Path) -> None:
        self._store = open_store(folder, create=True)
        self._refs: list[BlobRef] = []

    def publish(self, paths: Sequence[Path]) -> None:
        """Store every file's bytes as a blob."""
        self._refs = [self._store.blobs.put(path.read_bytes()) for path in paths]

    def load(self) -> list[bytes]:
        """Read every blob, which checks its sha256."""
        return [self._store.blobs.get(ref) for ref in self._refs]


class GitWay:
    """Loose objects of a bare git repository."""

    def __init__(self, folder: Path, compression: int | None) -> None:
        self._repository = Repository(folder, compression)
        self._names: list[str] = []

    def publish(self, paths: Sequence[Path]) -> None:
        """Write every file as a loose object, in one git process."""
        self._names = self._repository.hash_objects(paths)

    def load(self) -> list[bytes]:
        """Read every object through one git process."""
        return self._repository.read(self._names)


class CopyWay:
    """Files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._paths: list[Path] = []

    def publish(self, paths: Sequence[Path]) -> None:
        """Copy every file and wait until its bytes are on the disk."""
        for path in paths:
            copied = self._folder / path.name
            shutil.copyfile(path, copied)
            _sync(copied)
            self._paths.append(copied)

    def load(self) -> list[bytes]:
        """Read every file."""
        return [path.read_bytes() for path in self._paths]


WAYS: dict[str, Callable[[Path], Way]] = {
    STORE: StoreWay,
    "git_level_0": lambda folder: GitWay(folder, 0),
    "git": lambda folder: GitWay(folder, None),
    "copy": CopyWay,
}
"""All ways by name; each takes a folder that does not exist yet."""


PUBLISH, LOAD, LOAD_COLD = "publish", "load", "load_cold"

ACTIONS = {
    PUBLISH: "publish",
    LOAD: "load, pages cached",
    LOAD_COLD: "load, pages dropped",
}
"""What is timed, with titles. Dropped pages may still be cached by a virtual machine's host."""

_SEED = 1


@dataclass(frozen=True, kw_only=True)
class Blobs:
    """So many blobs of one size, and what each way took for all of them, in seconds."""

    size: int
    count: int
    seconds: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {way: {action: [] for action in ACTIONS} for way in WAYS}
    )
    same: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(WAYS, True))
    """By way, whether every load so far returned the bytes that were published."""

    @property
    def megabytes(self) -> float:
        """Size of all of them, in 10^6 bytes."""
        return self.size * self.count / 1e6


def make_sources(blobs: Blobs, folder: Path) -> list[Path]:
    """Write one file of incompressible bytes for each blob; the same ones in every run."""
    folder.mkdir()
    chance = Random(f"{_SEED} {blobs.size}")
    paths = [folder / f"{number:06}" for number in range(blobs.count)]
    for path in paths:
        path.write_bytes(chance.randbytes(blobs.size))
    return paths


def measure(blobs: Blobs, sources: Sequence[Path], folder: Path, repetition: int) -> None:
    """Take one sample of everything, each way in an empty folder that is deleted afterwards."""
    contents = [path.read_bytes() for path in sources]
    for name in rotated(list(WAYS), repetition):
        place = folder / f"blobs_in_{name}"
        way = WAYS[name](place)
        seconds = blobs.seconds[name]
        os.sync()
        seconds[PUBLISH].append(_time(lambda way=way: way.publish(sources)))  # type: ignore[misc]
        blobs.same[name] &= _load(way.load, contents, seconds[LOAD])
        os.sync()
        _forget_pages(place)
        blobs.same[name] &= _load(way.load, contents, seconds[LOAD_COLD])
        shutil.rmtree(place)


def _load(load: Callable[[], list[bytes]], contents: list[bytes], samples: list[float]) -> bool:
    start = time.perf_counter()
    loaded = load()
    samples.append(time.perf_counter() - start)
    return loaded == contents


def _time(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _forget_pages(folder: Path) -> None:
    """Drop what the page cache holds of the files below ``folder``, which must be synced."""
    for parent, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
