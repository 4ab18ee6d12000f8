"""One kind of object in a store: which names its files have, and how they come and go.

A shelf keeps bytes under digests; what the bytes must be is for ``blobs``, ``programs`` and
``builds``.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pp_precompile.contract.digest import Digest, is_digest
from pp_precompile.store import atomic
from pp_precompile.store.failures import unreadable
from pp_precompile.store.reading import read_object


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Where objects of one kind lie below the root."""

    folder: str
    suffix: str
    fan_out: bool
    """Whether there is a folder for each first two digits, as thousands of files need."""

    def parts(self, digest: Digest) -> tuple[str, ...]:
        """Return the path of an object below the root, as parts.

        Raises:
            ValueError: if ``digest`` is not one, which is also what keeps paths in the store.
        """
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is not a digest")
        fan = (digest[:2],) if self.fan_out else ()
        return (self.folder, *fan, f"{digest}{self.suffix}")


BLOBS = Kind(folder="blobs", suffix="", fan_out=True)
PROGRAMS = Kind(folder="programs", suffix=".msgpack", fan_out=True)
BUILDS = Kind(folder="builds", suffix=".msgpack", fan_out=False)

KINDS = (BLOBS, PROGRAMS, BUILDS)


class Shelf:
    """The objects of one kind in one store."""

    def __init__(self, root: Path, kind: Kind) -> None:
        self.root = root
        self.kind = kind

    @property
    def folder(self) -> Path:
        """The folder that holds the shelf's objects."""
        return self.root / self.kind.folder

    def path(self, digest: Digest) -> Path:
        """Return where the object ``digest`` lies or would lie."""
        return self.root.joinpath(*self.kind.parts(digest))

    def read(self, digest: Digest, *, limit: int) -> bytes | None:
        """Return the object's bytes (at most ``limit + 1``), unchecked; None if it is not there.

        Raises:
            StoreError: PPC201, PPC208; see :func:`read_object`.
        """
        return read_object(self.root, self.kind.parts(digest), limit=limit)

    def write(self, digest: Digest, data: bytes) -> None:
        """Put or replace an object, atomically and durably.

        Raises:
            StoreError: PPC202.
        """
        atomic.write(self.path(digest), data)

    def remove(self, digest: Digest) -> None:
        """Delete an object; it is no error if there is none.

        Raises:
            StoreError: PPC202.
        """
        atomic.remove(self.path(digest))

    def size(self, digest: Digest) -> int | None:
        """Return the size in bytes of the object's file; None if there is no regular file.

        Raises:
            StoreError: PPC201 if the system cannot tell.
        """
        path = self.path(digest)
        try:
            status = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unreadable(path, error) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def __iter__(self) -> Iterator[Digest]:
        """Yield the digest of every object, in order; files with other names are passed over.

        Raises:
            StoreError: PPC201 if a folder cannot be listed.
        """
        folders = _names(self.folder) if self.kind.fan_out else [""]
        for fan in folders:
            for name in _names(self.folder / fan):
                digest = Digest(name.removesuffix(self.kind.suffix))
                if is_digest(digest) and self.path(digest) == self.folder / fan / name:
                    yield digest


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(folder, error) from error
