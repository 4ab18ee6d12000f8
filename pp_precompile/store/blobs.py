"""Content-addressed bytes: what comes out is what its name says, or an error.

Knows sizes and digests only; a blob's inside is read elsewhere, and only after ``get`` returned.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import MAX_BYTES
from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.contract.program import BlobRef
from pp_precompile.store import lock
from pp_precompile.store.remote import Remote
from pp_precompile.store.shelf import BLOBS, LOCK_SECONDS, Item, Shelf


class Blobs:
    """The blobs of one store."""

    def __init__(self, root: Path, remote: Remote | None = None) -> None:
        self._shelf = Shelf(root, BLOBS, remote)

    def put(self, data: bytes) -> BlobRef:
        """Store ``data`` and return how to refer to it.

        A whole copy that is there already is kept; a damaged one is replaced.

        Raises:
            StoreError: PPC202 if it cannot be written, or is larger than a blob may be.
        """
        if len(data) > MAX_BYTES:
            raise StoreError(
                "PPC202",
                "a blob is too large for the store",
                expected=f"at most {MAX_BYTES} bytes",
                found=f"{len(data)} bytes",
                hint="cut the model into more stages, so that each program is smaller",
            )
        ref = BlobRef(digest=digest_bytes(data), size=len(data))
        # In this order: a blob that a collector took since is written again.
        if not self.is_whole(ref) or not self._keep(ref):
            self._shelf.write(ref.digest, data)
        return ref

    def get(self, ref: BlobRef) -> bytes:
        """Return the bytes of a blob after checking their number and full sha256.

        Raises:
            StoreError: PPC203 if it is not there, PPC201 or PPC208 if it must not be read.
            CorruptError: PPC204 if it is not what ``ref`` says.
        """
        if ref.size > MAX_BYTES:
            raise self._damaged(ref, f"a declared size of {ref.size} bytes, over {MAX_BYTES}")
        data = self._shelf.read(
            ref.digest, limit=ref.size, check=lambda data: self._check(ref, data)
        )
        if data is None:
            raise missing_blob(ref, self._shelf.place(ref.digest))
        return data

    def has(self, ref: BlobRef) -> bool:
        """Tell whether a file of the right size is there; its bytes are for ``get`` to check.

        Raises:
            StoreError: PPC201 if the system cannot tell.
        """
        return self._shelf.size(ref.digest) == ref.size

    def is_whole(self, ref: BlobRef) -> bool:
        """Tell whether a blob is there and its bytes are what ``ref`` says, by reading them.

        Raises:
            StoreError: PPC201, PPC208, or PPC211.
        """
        if not self.has(ref):
            return False
        try:
            self.get(ref)
        except CorruptError:
            return False
        except StoreError as error:
            # Deleted since `has` looked.
            if error.code == "PPC203":
                return False
            raise
        return True

    def path(self, digest: Digest) -> Path:
        """Return where a blob lies on this host, for tools; read it with ``get``."""
        return self._shelf.path(digest)

    def place(self, digest: Digest) -> str:
        """Return where a blob lies, for messages: a path or a URL."""
        return self._shelf.place(digest)

    def items(self) -> dict[Digest, Item]:
        """Return every blob with its size and last use, in the order of the digits.

        Raises:
            StoreError: PPC201 if a folder cannot be listed.
        """
        return self._shelf.items()

    def use(self, digest: Digest) -> bool:
        """Note that a blob is needed; see :meth:`Shelf.use`."""
        return self._shelf.use(digest)

    def remove(self, digest: Digest) -> None:
        """Delete a blob; it is no error if there is none.

        Raises:
            StoreError: PPC202.
        """
        self._shelf.remove(digest)

    def remove_all(self, digests: Collection[Digest]) -> None:
        """Delete blobs; see :meth:`Shelf.remove_all`."""
        self._shelf.remove_all(digests)

    def __iter__(self) -> Iterator[Digest]:
        """Yield the digest of every blob, in order.

        Raises:
            StoreError: PPC201 if a folder cannot be listed.
        """
        return iter(self._shelf)

    def _keep(self, ref: BlobRef) -> bool:
        """Note that a blob that is there is needed; False if it went away in the meantime."""
        if self._shelf.remote is not None:
            return True
        with lock.writing(self._shelf.root, seconds=LOCK_SECONDS):
            # Somebody else's file cannot be touched; then it is only younger than it looks.
            return self._shelf.use(ref.digest) or self.has(ref)

    def _check(self, ref: BlobRef, data: bytes) -> None:
        if len(data) != ref.size:
            # Of a longer file, only one byte too many was read.
            more = "at least " if len(data) > ref.size else ""
            raise self._damaged(ref, f"{more}{len(data)} bytes")
        found = digest_bytes(data)
        if found != ref.digest:
            raise self._damaged(ref, f"sha256 {found}")

    def _damaged(self, ref: BlobRef, found: str) -> CorruptError:
        place = self._shelf.place(ref.digest)
        return CorruptError(
            "PPC204",
            f"blob {ref.digest} is damaged",
            expected=f"{ref.size} bytes with that sha256",
            found=f"{found} in {place}",
            hint="delete that file and build again: only what it held is compiled",
        )


def missing_blob(ref: BlobRef, place: str) -> StoreError:
    """Return the error for a blob that something refers to and that is not in the store."""
    return StoreError(
        "PPC203",
        f"blob {ref.digest} is missing",
        expected=f"{ref.size} bytes in {place}",
        found="no such file of that size",
        hint="copy stores whole, or build again: only what it held is compiled",
    )
