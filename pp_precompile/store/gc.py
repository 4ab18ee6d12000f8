"""Delete builds that are no longer wanted, then the blobs that nothing needs any more.

Safe beside running jobs and builders, by three rules:

- A build's manifest goes before its blobs, and its blobs stay for a time of grace from then on, so
  that a job which has read the manifest finds them.
- A blob counts as used when it is written, when a builder reuses it, and when the last build that
  needed it goes. Only one that was unused for the time of grace is deleted.
- While blobs are deleted no writer is between finding a blob and relying on it: see ``lock``.

Behind a URL the first two hold, but for what a builder reuses (see ``freed``), and the third does
not.
"""

import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import MissingBuildError
from pp_precompile.store import lock
from pp_precompile.store.freed import Freed
from pp_precompile.store.leftovers import remove_leftovers
from pp_precompile.store.pins import pinned
from pp_precompile.store.references import References, references
from pp_precompile.store.shelf import Item
from pp_precompile.store.store import Store

GRACE_SECONDS = 24 * 3600.0
"""Time of grace, unless said otherwise: far longer than a build takes, or a job to load one."""

_WAIT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Which builds stay: those that any of these rules keeps. Without a rule, all do."""

    newest: int | None = None
    """This many that were used last."""
    seconds: float | None = None
    """Those used within so many seconds."""
    builds: Collection[Digest] = ()
    """These; pinned ones are always kept."""

    def chosen(self, items: dict[Digest, Item], now: float) -> set[Digest]:
        """Return the builds to keep out of ``items``."""
        if self.newest is None and self.seconds is None:
            return set(items)
        latest = sorted(items, key=lambda build: (-items[build].used, build))
        kept = set(latest[: self.newest or 0]) | set(self.builds)
        if self.seconds is not None:
            kept |= {build for build, item in items.items() if now - item.used <= self.seconds}
        return kept & set(items)


@dataclass(kw_only=True)
class Swept:
    """What was deleted, or would be; sizes in bytes."""

    builds: list[Digest] = field(default_factory=list)
    entries: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    waiting: int = 0
    """Blobs that nothing needs, still within the time of grace."""
    waiting_bytes: int = 0
    leftovers: int = 0
    leftover_bytes: int = 0


def collect(
    store: Store, keep: Keep, *, grace: float = GRACE_SECONDS, dry_run: bool = False
) -> Swept:
    """Delete what ``keep`` does not keep, and what nothing needs.

    Args:
        store: the store; a damaged manifest or entry in it stays, for ``fsck`` to report.
        keep: which builds stay.
        grace: seconds that a blob stays after its last use.
        dry_run: count only.

    Raises:
        StoreError: PPC210 if another collector or a writer is at work for too long or the file
            system has no locks, PPC202 if something cannot be deleted.
        CorruptError: PPC204 to PPC206 if a remote store's record of a build that went is damaged.
    """
    # Of a remote store, what lies there counts, not what this host remembers of it.
    store = store.past_cache()
    if store.remote is not None or dry_run:
        return _collect(store, keep, grace, dry_run)
    held = lock.hold(
        store.root, lock.COLLECTING, alone=True, seconds=_WAIT_SECONDS, what="delete blobs"
    )
    try:
        with held:
            return _collect(store, keep, grace, dry_run)
    except OSError as error:
        raise lock.without_locks(store.root, error) from error


def _collect(store: Store, keep: Keep, grace: float, dry_run: bool) -> Swept:
    now = time.time()
    swept = Swept()
    freed = Freed(store)
    waiting, over = freed.split(now - grace) if store.remote else (set(), [])
    if not dry_run:
        # Before any build goes: the same manifest may have come back, and go again now.
        freed.forget(over)
    known = references(store)
    kept = keep.chosen(store.builds.items(), now) | pinned(store)
    for build in sorted(set(known.builds) - kept):
        swept.builds.append(build)
        if not dry_run:
            if grace > 0:
                _use_blobs(store, freed, known, build)
            store.builds.remove(build)
    needed = {d for build, refs in known.builds.items() if build in kept for d in refs}
    # The blobs of a manifest that cannot be read are unknown: then nothing is known to be unneeded.
    unreadable = len(known.findings) > len(known.damaged_entries)
    waiting |= known.of_builds() - needed
    _sweep(store, known, needed, waiting, grace, now, swept, dry_run=dry_run or unreadable)
    if not dry_run and store.remote is None:
        sizes = remove_leftovers(store, older_than=grace)
        swept.leftovers, swept.leftover_bytes = len(sizes), sum(sizes)
    return swept


def _use_blobs(store: Store, freed: Freed, known: References, build: Digest) -> None:
    """Start the time of grace of what a build needed: a job may have read its manifest."""
    if store.remote is not None:
        with contextlib.suppress(MissingBuildError):  # another collector was faster
            freed.add(store.builds.read(build))
        return
    for digest in known.builds[build]:
        store.blobs.use(digest)


def _sweep(
    store: Store,
    known: References,
    needed: set[Digest],
    waiting: set[Digest],
    grace: float,
    now: float,
    swept: Swept,
    *,
    dry_run: bool,
) -> None:
    entries: dict[Digest, list[Digest]] = {}
    for key, ref in known.entries.items():
        entries.setdefault(ref.digest, []).append(key)
    blobs: list[Digest] = []
    for digest, item in store.blobs.items().items():
        if digest in needed:
            continue
        if grace > 0 and (now - item.used < grace or digest in waiting):
            swept.waiting += 1
            swept.waiting_bytes += item.size
            continue
        blobs.append(digest)
        swept.blob_bytes += item.size
    keys = [key for digest in blobs for key in entries.get(digest, ())]
    swept.blobs, swept.entries = len(blobs), len(keys)
    if not dry_run:
        # An entry without its blob costs a builder a look; a blob without its entry, its space.
        store.programs.remove_all(keys)
        store.blobs.remove_all(blobs)
