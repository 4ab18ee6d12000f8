"""Compiled programs by key, so that no build compiles what another has compiled.

An index for builders only: loading goes through a build's manifest, never through here. A wrong
entry therefore costs a compilation and nothing else.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.encoding import decode, encode
from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.contract.program import MAX_ENTRY_BYTES, ProgramEntry
from pp_precompile.store.blobs import Blobs
from pp_precompile.store.remote import Remote
from pp_precompile.store.shelf import PROGRAMS, Item, Shelf

_log = logging.getLogger(__name__)


class Programs:
    """The program entries of one store."""

    def __init__(self, root: Path, blobs: Blobs, remote: Remote | None = None) -> None:
        self._shelf = Shelf(root, PROGRAMS, remote)
        self._blobs = blobs

    def find(self, key: Digest) -> ProgramEntry | None:
        """Return the entry of ``key`` if it and its blob are there and whole, else None.

        The blob's digest is checked, so that a damaged one is compiled again, not published again.
        What is damaged is reported as a warning; ``Blobs.put`` and ``record`` replace it.

        Raises:
            StoreError: PPC201 or PPC208 if the store must not be read.
        """
        try:
            entry = self.read(key)
            if entry is not None:
                self._blobs.get(entry.blob)
                self._blobs.use(entry.blob.digest)
        except CorruptError as error:
            _log.warning("program %s will be compiled again: %s", key, error)
            return None
        except StoreError as error:
            if error.code != "PPC203":
                raise
            _log.info("program %s will be compiled again: %s", key, error)
            return None
        return entry

    def record(self, entry: ProgramEntry) -> None:
        """Store or replace an entry; its blob should be there already.

        Raises:
            StoreError: PPC202.
        """
        self._shelf.write(entry.key, encode(entry))

    def adopt(self, entries: Mapping[Digest, ProgramEntry], *, verify: bool) -> None:
        """Record the programs of a build that came from elsewhere, unless they are known here.

        What this store's own builders recorded is never replaced: it would be by somebody else's.

        Args:
            entries: by key.
            verify: whether a damaged entry, or one without its blob, is looked for and replaced.

        Raises:
            StoreError: PPC201, PPC202, or PPC211.
        """
        known = set(self)
        for key, entry in entries.items():
            if key not in known or (verify and not self._whole(key)):
                self.record(entry)

    def remove(self, key: Digest) -> None:
        """Delete an entry, not its blob; it is no error if there is none.

        Raises:
            StoreError: PPC202.
        """
        self._shelf.remove(key)

    def remove_all(self, keys: Collection[Digest]) -> None:
        """Delete entries, not their blobs; see :meth:`Shelf.remove_all`."""
        self._shelf.remove_all(keys)

    def items(self) -> dict[Digest, Item]:
        """Return every entry's key with the file's size and last use.

        Raises:
            StoreError: PPC201 if a folder cannot be listed.
        """
        return self._shelf.items()

    def __iter__(self) -> Iterator[Digest]:
        """Yield the key of every entry, in order.

        Raises:
            StoreError: PPC201 if a folder cannot be listed.
        """
        return iter(self._shelf)

    def read(self, key: Digest) -> ProgramEntry | None:
        """Return the entry of ``key``, None if there is none; its blob is not looked at.

        Raises:
            CorruptError: PPC205 if it is damaged, or not the one that its file name says.
            StoreError: PPC201 or PPC208 if the store must not be read.
        """
        read: list[ProgramEntry] = []
        self._shelf.read(
            key, limit=MAX_ENTRY_BYTES, check=lambda data: read.append(self._decode(key, data))
        )
        return read[-1] if read else None

    def _whole(self, key: Digest) -> bool:
        try:
            entry = self.read(key)
        except CorruptError:
            return False
        return entry is not None and self._blobs.has(entry.blob)

    def _decode(self, key: Digest, data: bytes) -> ProgramEntry:
        what = f"program entry {key}"
        entry = decode(data, ProgramEntry, what=what, limit=MAX_ENTRY_BYTES)
        if entry.key != key:
            raise CorruptError(
                "PPC205",
                f"{what} is not what its file name says",
                expected=f"key {key}",
                found=f"key {entry.key} in {self._shelf.place(key)}",
                hint="delete that file: it was renamed or swapped",
            )
        return entry
