"""A store behind an fsspec URL, such as ``s3://bucket/store``: objects by path, whole or absent.

Knows neither digests nor structures: whoever reads checks. Every call is tried a few times, and
then ends with one error; a download that broke off goes on where it stopped, also in the next
process.
"""

import copy
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pp_precompile.contract.errors import StoreError, UsageError
from pp_precompile.store import atomic
from pp_precompile.store.failures import unwritable

T = TypeVar("T")

_log = logging.getLogger(__name__)

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each further try."""

CHUNK_BYTES = 8 * 1024 * 1024
"""Bytes of one request of a download: what a broken connection can cost."""

_NO_TRY = (PermissionError, IsADirectoryError, NotADirectoryError)

_ATOMIC = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci", "memory", "hf")
"""Protocols whose uploads are seen whole or not at all; elsewhere a rename makes them so."""


class Remote:
    """The files of a store behind one URL."""

    def __init__(self, url: str) -> None:
        """Connect nothing yet; credentials and endpoints come from where fsspec looks for them.

        Raises:
            UsageError: PPC001 for a protocol that is unknown, or whose package is not installed.
        """
        import fsspec

        self.url = url.rstrip("/")
        protocol = url.partition("://")[0]
        try:
            files, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise UsageError(
                "PPC001",
                f"the store's URL cannot be used: {url}",
                expected="a folder, or a URL whose protocol fsspec has a package for",
                found=error,
                hint="install that package (s3fs for s3://, gcsfs for gs://), or correct the URL",
            ) from error
        self._files: Any = files
        self._root = root.rstrip("/")
        self._atomic = protocol in _ATOMIC
        self.cached = True
        """Whether this host may use what it fetched before."""

    def past_cache(self) -> "Remote":
        """Return the same files, of which this host believes no copy of its own."""
        other = copy.copy(self)
        other.cached = False
        return other

    def place(self, parts: tuple[str, ...]) -> str:
        """Return the URL of the file at ``parts``, for messages."""
        return "/".join((self.url, *parts))

    def read(self, parts: tuple[str, ...], *, unfinished: Path, limit: int) -> bytes | None:
        """Return the file's bytes, unchecked, at most ``limit + 1``; None if it is not there.

        Args:
            parts: the file's path below the URL.
            unfinished: keeps what was fetched while the download is not complete.
            limit: most bytes that are wanted.

        Raises:
            StoreError: PPC211 if the remote store fails, PPC202 if this host's disk does.
        """
        total = self.size(parts)
        if total is None:
            unfinished.unlink(missing_ok=True)
            return None
        wanted = min(total, limit + 1)
        have = _begin(unfinished, wanted)
        while have < wanted:
            end = min(have + CHUNK_BYTES, wanted)
            chunk = self._try(parts, "read", partial(self._range, start=have, end=end))
            if not chunk:
                unfinished.unlink(missing_ok=True)
                return None
            _append(unfinished, chunk, have)
            have += len(chunk)
        data = unfinished.read_bytes()
        # Whatever the check of these bytes says, the next try shall not start from them.
        unfinished.unlink(missing_ok=True)
        return data

    def write(self, parts: tuple[str, ...], data: bytes) -> None:
        """Put or replace a file; readers see the old one or the whole new one.

        Raises:
            StoreError: PPC202.
        """
        try:
            self._try(parts, "write", lambda path: self._put(path, data))
        except StoreError as error:
            raise _not_written(error) from error

    def check_writable(self) -> None:
        """Write and delete a small file.

        Raises:
            StoreError: PPC202.
        """
        parts = ("builds", f".probe.{secrets.token_hex(8)}.tmp")
        self.write(parts, b"probe")
        self.remove(parts)

    def remove(self, parts: tuple[str, ...]) -> None:
        """Delete a file; it is no error if there is none.

        Raises:
            StoreError: PPC202.
        """
        try:
            self._try(parts, "delete", self._files.rm_file)
        except StoreError as error:
            raise _not_written(error) from error

    def size(self, parts: tuple[str, ...]) -> int | None:
        """Return a file's size in bytes; None if there is none.

        Raises:
            StoreError: PPC211.
        """
        # Listings are cached by some file systems, also the absence of what another host writes.
        self._files.invalidate_cache()
        info = self._try(parts, "look up", self._files.info)
        return int(info["size"]) if info and info["type"] == "file" else None

    def items(self, folder: str) -> Iterator[tuple[tuple[str, ...], int, float]]:
        """Yield path, size in bytes and time of writing of every file below ``folder``.

        Raises:
            StoreError: PPC211.
        """
        self._files.invalidate_cache()
        found = self._try((folder,), "list", lambda path: self._files.find(path, detail=True)) or {}
        for path, info in found.items():
            below = str(path).removeprefix(self._root).strip("/")
            yield tuple(below.split("/")), int(info["size"] or 0), _written(info)

    def _range(self, path: str, *, start: int, end: int) -> bytes:
        return bytes(self._files.cat_file(path, start=start, end=end))

    def _put(self, path: str, data: bytes) -> None:
        if self._atomic:
            self._files.pipe_file(path, data)
            return
        folder, _, name = path.rpartition("/")
        self._files.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{name}.{os.getpid()}-{secrets.token_hex(8)}.tmp"
        self._files.pipe_file(temporary, data)
        self._files.mv(temporary, path)

    def _try(self, parts: tuple[str, ...], verb: str, act: Callable[[str], T]) -> T | None:
        """Return what ``act`` returns for the file's path; None if the file is not there.

        Every package behind fsspec has exceptions of its own, so any is a failed try.
        """
        path = "/".join((self._root, *parts))
        for pause in (*PAUSES, None):
            try:
                return act(path)
            except FileNotFoundError:
                if verb == "write":
                    raise self._failed(parts, verb, "no such bucket or folder") from None
                return None
            except Exception as error:
                if pause is None or isinstance(error, _NO_TRY):
                    raise self._failed(parts, verb, f"{type(error).__name__}: {error}") from error
                _log.warning("trying again to %s %s: %s", verb, self.place(parts), error)
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _failed(self, parts: tuple[str, ...], verb: str, found: str) -> StoreError:
        return StoreError(
            "PPC211",
            f"cannot {verb} {self.place(parts)}",
            expected=f"an answer within {len(PAUSES) + 1} tries",
            found=found[:500],
            hint="check the URL, the network and the credentials of this host; what was fetched "
            "already is kept",
            exit_code=2,
        )


def _begin(unfinished: Path, wanted: int) -> int:
    """Return how many of ``wanted`` bytes an earlier download left."""
    try:
        atomic.make_folder(unfinished.parent)
        have = unfinished.stat().st_size if unfinished.exists() else 0
    except OSError as error:
        raise unwritable(unfinished, error) from error
    if have <= wanted:
        return have
    unfinished.unlink(missing_ok=True)
    return 0


def _append(unfinished: Path, chunk: bytes, position: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(unfinished, flags, 0o600)
        with open(file, "wb") as stream:
            stream.seek(position)
            stream.write(chunk)
    except OSError as error:
        raise unwritable(unfinished, error) from error


def _not_written(error: StoreError) -> StoreError:
    return StoreError(
        "PPC202",
        error.message,
        expected="a remote store that this host may write",
        found=error.found,
        hint=error.hint,
        exit_code=2,
    )


def _written(info: dict[str, Any]) -> float:
    """Return seconds since 1970; now, if the file system does not tell: nothing is too old then."""
    for name in ("LastModified", "mtime", "created", "updated", "last_modified"):
        value = info.get(name)
        if isinstance(value, int | float):
            return float(value)
        if value is not None and hasattr(value, "timestamp"):
            return float(value.timestamp())
    return time.time()
