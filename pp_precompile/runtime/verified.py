"""Blobs between being checked and being loaded: read once, and the same bytes both times."""

from collections.abc import Callable

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.program import BlobRef


class VerifiedBlobs:
    """Keeps the bytes of blobs that were read for a check until they are loaded.

    Nothing is read again to be loaded, and what is loaded cannot be other bytes than were checked,
    whatever happens to the store in between.
    """

    def __init__(self, read: Callable[[BlobRef], bytes]) -> None:
        """Read with ``read``, which returns a blob's bytes after verifying size and digest."""
        self._read = read
        self._kept: dict[Digest, bytes] = {}

    def check(self, ref: BlobRef) -> bytes:
        """Return a blob's bytes, and keep them for :meth:`take`.

        Raises:
            StoreError: as ``read`` does.
        """
        if ref.digest not in self._kept:
            self._kept[ref.digest] = self._read(ref)
        return self._kept[ref.digest]

    def take(self, ref: BlobRef) -> bytes:
        """Return a blob's bytes and let go of them; what was not kept is read.

        Raises:
            StoreError: as ``read`` does.
        """
        kept = self._kept.pop(ref.digest, None)
        return self._read(ref) if kept is None else kept
