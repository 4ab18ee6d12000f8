"""Check a store of many blobs, and delete half of it, next to git doing so with as many objects.

What a check costs at least is told by ``sha256sum`` over the same blobs. git has nothing like a
manifest: one tree of one commit refers to what is kept. ``git gc`` also packs what stays, which a
store never does; ``git prune`` only deletes, but syncs nothing.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import rotated
from benchmarks.store_fill import Filled, fill
from benchmarks.store_git import Repository
from pp_precompile.contract.digest import Digest
from pp_precompile.store.fsck import Health, check_store
from pp_precompile.store.gc import Keep, collect
from pp_precompile.store.references import references
from pp_precompile.store.store import Store, open_store

CHECKING = ("fsck", "references", "git_fsck", "sha256sum")
DELETING = ("gc", "git_gc", "git_prune")

_GIT_COMMIT_AND_TREE = 2


@dataclass(kw_only=True)
class Upkeep:
    """A store and a repository of the same blobs, and what everything took, in seconds."""

    filled: Filled
    repository: Repository
    kept_builds: int
    blob_bytes: int
    manifest_bytes: int
    """Size of all manifests together."""
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in (*CHECKING, *DELETING)}
    )
    sound: bool = True
    """Whether every check so far found nothing, and counted everything."""
    exact: bool = True
    """Whether every collection so far deleted what it should, all of it and nothing else."""
    git_agrees: bool = True
    """Whether git deleted as many objects as it should."""
    found_damage: bool = True
    """Whether every check after a collection found the one blob damaged since, and nothing else."""

    @property
    def blobs(self) -> frozenset[Digest]:
        """All blobs of the store."""
        return self.filled.spare.union(*self.filled.builds.values())

    @property
    def deleted(self) -> frozenset[Digest]:
        """The blobs that a collection has to delete."""
        return self.blobs - self.filled.needed_by_newest(self.kept_builds)


def prepare(folder: Path, *, blobs: int, blob_bytes: int) -> Upkeep:
    """Make the store and the repository."""
    filled = fill(folder / "store", blobs=blobs, blob_bytes=blob_bytes)
    repository = Repository(folder / "repository", 0)
    kept_builds = len(filled.builds) // 2
    kept = filled.needed_by_newest(kept_builds)
    digests = list(filled.store.blobs)
    names = repository.hash_objects([filled.store.blobs.path(d) for d in digests], durable=False)
    repository.commit([name for name, d in zip(names, digests, strict=True) if d in kept])
    return Upkeep(
        filled=filled,
        repository=repository,
        kept_builds=kept_builds,
        blob_bytes=blob_bytes,
        manifest_bytes=sum(item.size for item in filled.store.builds.items().values()),
    )


def measure(upkeep: Upkeep, folder: Path, repetition: int) -> None:
    """Take one sample of everything; what is deleted is deleted from copies."""
    actions = {
        "fsck": lambda: _fsck(upkeep),
        "references": lambda: references(upkeep.filled.store),
        "git_fsck": upkeep.repository.fsck,
        "sha256sum": lambda: _sha256sum(upkeep.filled.store),
    }
    for name in rotated(CHECKING, repetition):
        _time(upkeep, name, actions[name])
    for name in rotated(DELETING, repetition):
        copy = folder / "copy"
        if name == "gc":
            _collect(upkeep, copy)
        else:
            _git_delete(upkeep, name, copy)
        shutil.rmtree(copy)


def _fsck(upkeep: Upkeep) -> None:
    health = check_store(upkeep.filled.store)
    counted = (health.builds, health.blobs, health.orphans)
    expected = (len(upkeep.filled.builds), len(upkeep.blobs), 0)
    upkeep.sound &= health.sound and counted == expected


def _sha256sum(store: Store) -> None:
    listed = "\0".join(str(store.blobs.path(digest)) for digest in store.blobs)
    command = ["xargs", "-0", "sha256sum", "--"]
    subprocess.run(command, input=listed.encode(), stdout=subprocess.DEVNULL, check=True)


def _collect(upkeep: Upkeep, copy: Path) -> None:
    _copy(upkeep.filled.store.root, copy)
    store = open_store(copy, create=False)
    keep = Keep(newest=upkeep.kept_builds)
    _time(upkeep, "gc", lambda: collect(store, keep, grace=0))
    left, wanted = set(store.blobs), upkeep.filled.needed_by_newest(upkeep.kept_builds)
    builds = set(store.builds.ids()) == upkeep.filled.newest(upkeep.kept_builds)
    upkeep.exact &= builds and left == wanted
    upkeep.found_damage &= _finds_damage(store)


def _finds_damage(store: Store) -> bool:
    """Flip one bit in the middle of one blob and tell whether a check finds that."""
    digest = sorted(store.blobs)[0]
    path = store.blobs.path(digest)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return names_only(check_store(store), digest)


def names_only(health: Health, digest: Digest) -> bool:
    """Tell whether a check found that this blob is damaged, and nothing else."""
    found = [(finding.code, digest in finding.message) for finding in health.findings]
    return found == [("PPC204", True)]


def _git_delete(upkeep: Upkeep, name: str, copy: Path) -> None:
    _copy(upkeep.repository.folder, copy)
    repository = upkeep.repository.moved(copy)
    _time(upkeep, name, repository.gc if name == "git_gc" else repository.prune)
    wanted = len(upkeep.filled.needed_by_newest(upkeep.kept_builds)) + _GIT_COMMIT_AND_TREE
    upkeep.git_agrees &= repository.count() == wanted


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--", str(source), str(target)], check=True)


def _time(upkeep: Upkeep, name: str, action: Callable[[], object]) -> None:
    os.sync()
    start = time.perf_counter()
    action()
    upkeep.seconds[name].append(time.perf_counter() - start)
