"""Check a whole store: every digest, every reference, and what nothing refers to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import CorruptError, PrecompileError
from pp_precompile.contract.program import BlobRef
from pp_precompile.graph.finding import Finding, from_error
from pp_precompile.store.freed import Freed
from pp_precompile.store.leftovers import leftovers
from pp_precompile.store.references import References, references
from pp_precompile.store.shelf import Item
from pp_precompile.store.store import Store

Progress = Callable[[int, int], None]
"""Called with the number of blobs read so far, and of all."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What was found; sizes in bytes. Orphans and leftovers harm nobody and cost space."""

    builds: int
    entries: int
    blobs: int
    bytes: int
    orphans: int
    orphan_bytes: int
    leftovers: int
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether everything that is there can be relied on."""
        return not self.findings


def check_store(store: Store, progress: Progress = lambda done, of: None) -> Health:
    """Read every object of ``store``; nothing is changed, and nothing is unpickled.

    Of a remote store, what lies there is read, and no copy that this host has.

    Raises:
        StoreError: PPC201 if the store cannot be read, PPC211 if a remote store fails.
    """
    store = store.past_cache()
    known = references(store)
    blobs = store.blobs.items()
    findings = [
        *known.findings,
        *_blobs(store, blobs, progress),
        *_missing(known, blobs),
        *map(from_error, Freed(store).damaged()),
    ]
    needed = known.of_builds() | {ref.digest for ref in known.entries.values()}
    orphans = [item for digest, item in blobs.items() if digest not in needed]
    return Health(
        builds=len(known.builds),
        entries=len(known.entries),
        blobs=len(blobs),
        bytes=sum(item.size for item in blobs.values()),
        orphans=len(orphans),
        orphan_bytes=sum(item.size for item in orphans),
        leftovers=sum(1 for _ in leftovers(store)),
        findings=tuple(findings),
    )


def _blobs(store: Store, blobs: dict[Digest, Item], progress: Progress) -> Iterator[Finding]:
    for done, (digest, item) in enumerate(blobs.items(), start=1):
        try:
            store.blobs.get(BlobRef(digest=digest, size=item.size))
        except CorruptError as error:
            yield from_error(error)
        except PrecompileError as error:
            if error.code != "PPC203":  # deleted since it was listed
                raise
        progress(done, len(blobs))


def _missing(known: References, blobs: dict[Digest, Item]) -> Iterator[Finding]:
    """Yield a finding for each object whose blob is not there, or has another size."""
    for build, refs in known.builds.items():
        for ref in refs.values():
            yield from _reference(f"build {build}", ref, blobs)
    for key, ref in known.entries.items():
        yield from _reference(f"program entry {key}", ref, blobs)


def _reference(what: str, ref: BlobRef, blobs: dict[Digest, Item]) -> Iterator[Finding]:
    item = blobs.get(ref.digest)
    if item is None or item.size != ref.size:
        yield Finding(
            code="PPC203",
            message=f"{what} refers to a blob that is not there",
            expected=f"blob {ref.digest} with {ref.size} bytes",
            found="no such blob" if item is None else f"{item.size} bytes",
            hint="copy the store whole, or build again: only what it held is compiled",
        )
