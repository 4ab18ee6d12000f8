"""Builds that went from a remote store a short time ago: their blobs stay for the time of grace.

A folder's blob says itself when the last build that needed it went: a collector sets the time of
its file. An object behind a URL has the time of its upload and no other. So a collector puts each
manifest that it takes away into ``freed/`` first, where the time of writing says since when its
blobs are free.
"""

from collections.abc import Iterator

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.errors import CorruptError
from pp_precompile.contract.manifest import MAX_MANIFEST_BYTES, Manifest
from pp_precompile.store.shelf import FREED, Item, Shelf
from pp_precompile.store.store import Store


class Freed:
    """The manifests that collectors took out of one remote store."""

    def __init__(self, store: Store) -> None:
        self._remote = store.remote.past_cache() if store.remote else None
        self._shelf = Shelf(store.root, FREED, self._remote)

    def add(self, manifest: Manifest) -> None:
        """Start the time of grace of what a build needs; call it before the build goes.

        Raises:
            StoreError: PPC202.
        """
        data = manifest.to_bytes()
        if self._remote is not None:
            # Past the cache: no host but the next collector's reads it.
            self._remote.write(FREED.parts(digest_bytes(data)), data)

    def split(self, since: float) -> tuple[set[Digest], list[Digest]]:
        """Return the blobs of builds that went after ``since``, and the records of all others.

        Raises:
            CorruptError: PPC204, PPC205 or PPC206 if a young record is damaged: what its build
                needs is not known then.
            StoreError: PPC211.
        """
        blobs: set[Digest] = set()
        old: list[Digest] = []
        for record, item in self._shelf.items().items():
            if item.used <= since:
                old.append(record)
            else:
                blobs |= self._blobs(record)
        return blobs, old

    def items(self) -> dict[Digest, Item]:
        """Return every record with its size and the time since when its blobs are free.

        Raises:
            StoreError: PPC211.
        """
        return self._shelf.items()

    def damaged(self) -> Iterator[CorruptError]:
        """Yield the error of each record that cannot be relied on, by reading all of them.

        Raises:
            StoreError: PPC211.
        """
        for record in self.items():
            try:
                self._blobs(record)
            except CorruptError as error:
                yield error

    def forget(self, records: list[Digest]) -> None:
        """Delete records whose time is over.

        Raises:
            StoreError: PPC202.
        """
        self._shelf.remove_all(records)

    def _blobs(self, record: Digest) -> set[Digest]:
        read: list[bytes] = []
        self._shelf.read(record, limit=MAX_MANIFEST_BYTES, check=read.append)
        if not read:  # another collector was faster
            return set()
        if digest_bytes(read[-1]) != record:
            raise CorruptError(
                "PPC204",
                f"the record {record} of a build that went is damaged",
                expected=f"a manifest with that sha256 in {self._shelf.place(record)}",
                found=f"sha256 {digest_bytes(read[-1])}",
                hint="delete that file if no job can have read that build",
            )
        return set(Manifest.from_bytes(read[-1], what=f"the record {record}").blobs())
