"""How much space a store takes, and what deleting a build would give back."""

from collections import Counter

import msgspec

from pp_precompile.contract.digest import Digest
from pp_precompile.store.freed import Freed
from pp_precompile.store.leftovers import leftovers
from pp_precompile.store.references import References
from pp_precompile.store.store import Store


class BuildUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One build: bytes of all its blobs and its manifest, and of those that no other build needs.

    ``used`` is when a job last loaded it, or it was published: seconds since 1970.
    """

    build: Digest
    bytes: int
    own_bytes: int
    used: float


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """A store; all sizes in bytes."""

    builds: tuple[BuildUsage, ...]
    blobs: int
    blob_bytes: int
    manifest_bytes: int
    """Of manifests and their signatures."""
    entry_bytes: int
    spare_bytes: int
    """Of blobs that no build needs: kept for builders to reuse, until a collector takes them."""
    freed_bytes: int
    """Of the manifests of builds that went from behind a URL, kept for the time of grace."""
    leftover_bytes: int

    @property
    def total_bytes(self) -> int:
        """Everything."""
        stored = self.blob_bytes + self.manifest_bytes + self.entry_bytes
        return stored + self.freed_bytes + self.leftover_bytes


def usage(store: Store, known: References) -> Usage:
    """Count what lies in ``store``; blobs that several builds need count once.

    Args:
        store: the store.
        known: what its builds and entries refer to.

    Raises:
        StoreError: PPC201 if the store cannot be read, PPC211 if a remote store fails.
    """
    manifests = store.builds.items()
    signatures = store.builds.signatures.items()
    blobs = store.blobs.items()
    needed_by = Counter(digest for refs in known.builds.values() for digest in refs)
    builds = []
    for build, refs in known.builds.items():
        sizes = {digest: blobs[digest].size for digest in refs if digest in blobs}
        own = sum(size for digest, size in sizes.items() if needed_by[digest] == 1)
        manifest = manifests.get(build)
        extra = manifest.size if manifest else 0
        builds.append(
            BuildUsage(
                build=build,
                bytes=sum(sizes.values()) + extra,
                own_bytes=own + extra,
                used=manifest.used if manifest else 0.0,
            )
        )
    return Usage(
        builds=tuple(sorted(builds, key=lambda one: (-one.used, one.build))),
        blobs=len(blobs),
        blob_bytes=sum(item.size for item in blobs.values()),
        manifest_bytes=sum(item.size for item in (*manifests.values(), *signatures.values())),
        entry_bytes=sum(item.size for item in store.programs.items().values()),
        spare_bytes=sum(item.size for d, item in blobs.items() if d not in needed_by),
        freed_bytes=sum(item.size for item in Freed(store).items().values()),
        leftover_bytes=sum(size for _, size in leftovers(store)),
    )
