"""One kind of object in a store: which names its files have, and how they come and go.

A shelf keeps bytes under digests; what the bytes must be is for ``blobs``, ``programs`` and
``builds``. Where the store is remote, the shelf's folder is this host's cache of it.
"""

import contextlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pp_precompile.contract.digest import Digest, is_digest
from pp_precompile.contract.errors import CorruptError, StoreError, UntrustedError
from pp_precompile.store import atomic, lock
from pp_precompile.store.failures import unreadable, unwritable
from pp_precompile.store.reading import read_object
from pp_precompile.store.remote import Remote

_log = logging.getLogger(__name__)

LOCK_SECONDS = 60.0
"""How long a writer waits for a collector; a collector's own work takes seconds."""

FETCH_SECONDS = 1800.0
"""How long a process waits for another one of its host to fetch an object for both."""

FRESH_SECONDS = 120.0
"""How long a cached object that may be replaced is believed: ranks that start together share it."""

Check = Callable[[bytes], object]
"""Raises a ``PrecompileError`` for bytes that are not what they should be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Where objects of one kind lie below the root."""

    folder: str
    suffix: str
    fan_out: bool
    """Whether there is a folder for each first two digits, as thousands of files need."""

    replaced: bool
    """Whether an object may get other bytes, so that a cached copy may be out of date."""

    def parts(self, digest: Digest) -> tuple[str, ...]:
        """Return the path of an object below the root, as parts.

        Raises:
            ValueError: if ``digest`` is not one, which is also what keeps paths in the store.
        """
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is not a digest")
        fan = (digest[:2],) if self.fan_out else ()
        return (self.folder, *fan, f"{digest}{self.suffix}")

    def digest(self, parts: tuple[str, ...]) -> Digest | None:
        """Return the digest of the object at ``parts``; None for a file with another name."""
        digest = Digest(parts[-1].removesuffix(self.suffix))
        return digest if is_digest(digest) and self.parts(digest) == parts else None


BLOBS = Kind(folder="blobs", suffix="", fan_out=True, replaced=False)
PROGRAMS = Kind(folder="programs", suffix=".msgpack", fan_out=True, replaced=True)
BUILDS = Kind(folder="builds", suffix=".msgpack", fan_out=False, replaced=True)
SIGNATURES = Kind(folder="builds", suffix=".sig", fan_out=False, replaced=True)
FREED = Kind(folder="freed", suffix=".msgpack", fan_out=False, replaced=False)
"""Manifests that a collector took out of a remote store, by the digest of their bytes."""

KINDS = (BLOBS, PROGRAMS, BUILDS)
"""One for each folder; signatures lie beside the builds that they are for."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Item:
    """What a listing says of an object: size in bytes, and seconds since 1970 of its last use."""

    size: int
    used: float


class Shelf:
    """The objects of one kind in one store."""

    def __init__(self, root: Path, kind: Kind, remote: Remote | None = None) -> None:
        self.root = root
        self.kind = kind
        self.remote = remote

    @property
    def folder(self) -> str:
        """Where the shelf's objects lie, for messages."""
        return self.remote.place((self.kind.folder,)) if self.remote else str(self._folder)

    @property
    def _folder(self) -> Path:
        return self.root / self.kind.folder

    def path(self, digest: Digest) -> Path:
        """Return where the object ``digest`` lies or would lie on this host."""
        return self.root.joinpath(*self.kind.parts(digest))

    def place(self, digest: Digest) -> str:
        """Return where the object ``digest`` lies or would lie, for messages."""
        parts = self.kind.parts(digest)
        return self.remote.place(parts) if self.remote else str(self.path(digest))

    def read(
        self, digest: Digest, *, limit: int, check: Check, cached: bool = True
    ) -> bytes | None:
        """Return the object's bytes after ``check`` let them pass; None if it is not there.

        At most ``limit + 1`` bytes are read: enough to see that there are too many. Of a remote
        store, the cache is asked first; what it lacks, or has and ``check`` refuses, is fetched
        once a host. With ``cached=False`` what the remote store has now is read past the cache.

        Raises:
            StoreError: PPC201, PPC208; see :func:`read_object`. PPC211 if a remote store fails.
            PrecompileError: what ``check`` raises.
        """
        if self.remote is None:
            data = self._local(digest, limit)
            if data is not None:
                check(data)
            return data
        if not cached or not self.remote.cached:
            return self._read_past_cache(self.remote, digest, limit, check)
        data = self._local(digest, limit)
        good = data if data is not None and self._good(digest, data, check) else None
        if good is not None and self._fresh(digest):
            return good
        try:
            return self._fetch(self.remote, digest, limit, check)
        except StoreError as error:
            if good is None or error.code != "PPC211":
                raise
            _log.warning("using the copy that this host has: %s", error)
            return good

    def write(self, digest: Digest, data: bytes) -> None:
        """Put or replace an object, atomically and durably.

        Raises:
            StoreError: PPC202; PPC210 if a collector keeps the store for too long.
        """
        with lock.writing(self.root, seconds=LOCK_SECONDS):
            atomic.write(self.path(digest), data)
        if self.remote:
            self.remote.write(self.kind.parts(digest), data)

    def use(self, digest: Digest) -> bool:
        """Note that the object is needed, so that no collector deletes it soon.

        Returns:
            whether that succeeded: the object may be gone, belong to somebody else, or be remote.
        """
        if self.remote:
            return False
        try:
            os.utime(self.path(digest))
        except OSError:
            return False
        return True

    def remove(self, digest: Digest) -> None:
        """Delete an object; it is no error if there is none.

        Raises:
            StoreError: PPC202.
        """
        self.remove_all([digest])

    def remove_all(self, digests: Collection[Digest]) -> None:
        """Delete objects, and wait once a folder for the disk rather than once an object.

        Raises:
            StoreError: PPC202.
        """
        if self.remote:
            for digest in digests:
                self.remote.remove(self.kind.parts(digest))
        atomic.remove_all(self.path(digest) for digest in digests)

    def size(self, digest: Digest) -> int | None:
        """Return the size in bytes of the object's file; None if there is no regular file.

        Raises:
            StoreError: PPC201 if the system cannot tell, PPC211 if a remote store cannot.
        """
        if self.remote:
            return self.remote.size(self.kind.parts(digest))
        item = self._item(self.path(digest))
        return item.size if item else None

    def items(self) -> dict[Digest, Item]:
        """Return every object with its size and last use, in the order of the digits.

        Raises:
            StoreError: PPC201 if a folder cannot be listed, PPC211 if a remote store cannot.
        """
        if self.remote:
            listed = self.remote.items(self.kind.folder)
            found = [(self.kind.digest(parts), Item(size=s, used=t)) for parts, s, t in listed]
            return dict(sorted((key, item) for key, item in found if key is not None))
        items = ((digest, self._item(self.path(digest))) for digest in self._local_digests())
        # One that was deleted since it was listed has none.
        return {digest: item for digest, item in items if item is not None}

    def __iter__(self) -> Iterator[Digest]:
        """Yield the digest of every object, in order; files with other names are passed over.

        Raises:
            StoreError: PPC201 if a folder cannot be listed, PPC211 if a remote store cannot.
        """
        return iter(self.items()) if self.remote else self._local_digests()

    def _local(self, digest: Digest, limit: int) -> bytes | None:
        return read_object(self.root, self.kind.parts(digest), limit=limit)

    def _good(self, digest: Digest, data: bytes, check: Check) -> bool:
        try:
            check(data)
        except (CorruptError, UntrustedError) as error:
            # Untrusted, too: it may have been published again since, with a new signature.
            _log.warning("fetching %s again: %s", self.place(digest), error)
            return False
        return True

    def _fresh(self, digest: Digest) -> bool:
        if not self.kind.replaced:
            return True
        item = self._item(self.path(digest))
        # A time in the future, from a clock that was wrong, tells nothing of the age.
        return item is not None and 0 <= time.time() - item.used < FRESH_SECONDS

    def _read_past_cache(
        self, remote: Remote, digest: Digest, limit: int, check: Check
    ) -> bytes | None:
        path = self.path(digest)
        # A name of its own: nothing here shall mix with a download into the cache.
        unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.part")
        try:
            data = remote.read(self.kind.parts(digest), unfinished=unfinished, limit=limit)
        finally:
            unfinished.unlink(missing_ok=True)
        if data is not None:
            check(data)
        return data

    def _fetch(self, remote: Remote, digest: Digest, limit: int, check: Check) -> bytes | None:
        parts, path = self.kind.parts(digest), self.path(digest)
        unfinished = path.with_name(f".{path.name}.part")
        with self._fetching(digest):
            # Another process of this host may have fetched it in the meantime.
            data = self._local(digest, limit)
            if data is not None and self._fresh(digest) and self._good(digest, data, check):
                return data
            data = remote.read(parts, unfinished=unfinished, limit=limit)
            if data is not None and not self._good(digest, data, check):
                # Once more: its first part may be from an earlier download, before a replacement.
                data = remote.read(parts, unfinished=unfinished, limit=limit)
            if data is not None:
                check(data)
                atomic.write(path, data)
        return data

    @contextlib.contextmanager
    def _fetching(self, digest: Digest) -> Iterator[None]:
        try:
            with lock.hold(
                self.root,
                lock.byte_of(digest, self.kind.suffix),
                alone=True,
                seconds=FETCH_SECONDS,
                what=f"fetch {digest}",
            ):
                yield
        except OSError as error:
            raise unwritable(self.root / lock.FILE, error) from error

    def _local_digests(self) -> Iterator[Digest]:
        folders = _names(self._folder) if self.kind.fan_out else [""]
        for fan in folders:
            for name in _names(self._folder / fan):
                parts = (self.kind.folder, *([fan] if fan else ()), name)
                if digest := self.kind.digest(parts):
                    yield digest

    def _item(self, path: Path) -> Item | None:
        try:
            status = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unreadable(path, error) from error
        if not stat.S_ISREG(status.st_mode):
            return None
        return Item(size=status.st_size, used=status.st_mtime)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(folder, error) from error
