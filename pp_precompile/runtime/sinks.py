"""Where freshly compiled programs go, and where programs are read from."""

import time

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.errors import StoreError
from pp_precompile.contract.program import BlobRef, ProgramEntry
from pp_precompile.store.store import Store

VISIBLE_SECONDS = 90.0
"""How long another host's write may take to be seen: network file systems cache what is not there
for up to a minute (``acdirmax`` of NFS)."""

_POLL_SECONDS = 0.2


class StoreSink:
    """Programs in a store. A damaged one counts as absent: it is compiled again and replaced."""

    def __init__(self, store: Store, *, patient: bool = False) -> None:
        """Use ``store`` for reading and writing.

        Args:
            store: the store.
            patient: wait for blobs that another host has just written to appear here.
        """
        self._store = store
        self._patience = VISIBLE_SECONDS if patient else 0.0

    def find(self, key: Digest) -> ProgramEntry | None:
        """Return the entry of a program whose bytes are there and whole, or None."""
        return self._store.programs.find(key)

    def add(self, key: Digest, data: bytes, kernels: int) -> ProgramEntry:
        """Write a program, its bytes before the entry that points to them.

        Raises:
            StoreError: PPC202 if the store cannot be written.
        """
        entry = ProgramEntry(key=key, blob=self._store.blobs.put(data), kernels=kernels)
        self._store.programs.record(entry)
        return entry

    def read(self, ref: BlobRef) -> bytes:
        """Return a blob's verified bytes.

        Raises:
            StoreError: PPC203 if it is missing, PPC204 if it is damaged.
        """
        end = time.monotonic() + self._patience
        while True:
            try:
                return self._store.blobs.get(ref)
            except StoreError as error:
                if error.code not in ("PPC203", "PPC204") or time.monotonic() > end:
                    raise
            time.sleep(_POLL_SECONDS)


class MemorySink:
    """Programs of this process only, for a job whose store cannot be written."""

    def __init__(self) -> None:
        """Start empty."""
        self._entries: dict[Digest, ProgramEntry] = {}
        self._blobs: dict[Digest, bytes] = {}

    def find(self, key: Digest) -> ProgramEntry | None:
        """Return the entry of a program compiled here, or None."""
        return self._entries.get(key)

    def add(self, key: Digest, data: bytes, kernels: int) -> ProgramEntry:
        """Keep a program."""
        blob = BlobRef(digest=digest_bytes(data), size=len(data))
        self._blobs[blob.digest] = data
        self._entries[key] = ProgramEntry(key=key, blob=blob, kernels=kernels)
        return self._entries[key]

    def read(self, ref: BlobRef) -> bytes:
        """Return the bytes of a program compiled here."""
        return self._blobs[ref.digest]
