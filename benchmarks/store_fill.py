"""A store of many small builds, made fast and with known contents.

Its files are written directly, without syncing and without the checks of publishing; that they
nevertheless form a sound store is for ``fsck`` to say.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from benchmarks.synthetic_build import synthetic_build
from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import BlobRef, ProgramEntry
from pp_precompile.store.shelf import BLOBS, BUILDS, PROGRAMS, Kind
from pp_precompile.store.store import Store, open_store

STAGES = 8

_AGE_SECONDS = 7 * 24 * 3600.0
_APART_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A store and what is in it: the blobs of each build, oldest build first, and spare ones."""

    store: Store
    builds: dict[Digest, frozenset[Digest]]
    spare: frozenset[Digest]

    def needed_by_newest(self, count: int) -> frozenset[Digest]:
        """Return the blobs that one of the ``count`` newest builds needs."""
        newest = list(self.builds.values())[len(self.builds) - count :]
        return frozenset().union(*newest)

    def newest(self, count: int) -> frozenset[Digest]:
        """Return the ``count`` newest builds."""
        return frozenset(list(self.builds)[len(self.builds) - count :])


def fill(folder: Path, *, blobs: int, blob_bytes: int) -> Filled:
    """Make a store of exactly so many blobs, in as many builds as they suffice for.

    Every build shares the blob of its very first program with all others and has the other ones
    for itself. What is left over is spare: no build needs it.
    """
    store = open_store(folder, create=True)
    files = _Files(folder, Random(blobs), blob_bytes)
    template = synthetic_build(STAGES, STAGES, STAGES)
    own = sum(len(stage.programs) for stage in template.stages) - 1
    count = (blobs - 1) // own
    shared = files.new_blob()
    builds: dict[Digest, frozenset[Digest]] = {}
    for number in range(count):
        manifest = _build(template, number, files, shared)
        builds[manifest.build_id] = frozenset(manifest.blobs())
        age = _AGE_SECONDS - number * _APART_SECONDS
        files.write(BUILDS, manifest.build_id, manifest.to_bytes(), age=age)
    spare = [files.new_blob().digest for _ in range(blobs - 1 - count * own)]
    return Filled(store=store, builds=builds, spare=frozenset(spare))


class _Files:
    """Writes the store's files, with the time of their last use."""

    def __init__(self, root: Path, chance: Random, blob_bytes: int) -> None:
        self._root = root
        self._chance = chance
        self._blob_bytes = blob_bytes
        self._now = time.time()

    def new_blob(self) -> BlobRef:
        """Write a blob of new bytes, with an entry for the program that it stands for."""
        data = self._chance.randbytes(self._blob_bytes)
        ref = BlobRef(digest=digest_bytes(data), size=len(data))
        self.write(BLOBS, ref.digest, data)
        entry = ProgramEntry(key=key_of(ref), blob=ref, kernels=0)
        self.write(PROGRAMS, entry.key, encode(entry))
        return ref

    def write(self, kind: Kind, digest: Digest, data: bytes, age: float = _AGE_SECONDS) -> None:
        """Write one object that was last used ``age`` seconds ago."""
        path = self._root.joinpath(*kind.parts(digest))
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
        os.utime(path, (self._now - age, self._now - age))


def key_of(ref: BlobRef) -> Digest:
    """Return the key of the program that a blob stands for."""
    return digest_bytes(f"key of {ref.digest}".encode())


def _build(template: Manifest, number: int, files: _Files, shared: BlobRef) -> Manifest:
    """Return the template with blobs of its own, all but the first."""
    refs = _refs(files, shared)
    stages = []
    for stage in template.stages:
        programs = {}
        for role, program in stage.programs.items():
            ref = next(refs)
            programs[role] = msgspec.structs.replace(program, key=key_of(ref), blob=ref, kernels=0)
        stages.append(msgspec.structs.replace(stage, programs=programs))
    factors = {**template.factors, "benchmark.number": str(number)}
    return msgspec.structs.replace(
        template, stages=tuple(stages), factors=factors, build_id=build_id(factors)
    )


def _refs(files: _Files, shared: BlobRef) -> Iterator[BlobRef]:
    yield shared
    while True:
        yield files.new_blob()
