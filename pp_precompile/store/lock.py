"""Locks between processes that use one folder; the kernel frees them when their holder dies.

Readers of a store take none: what they see is whole in any case. A lock only keeps a writer that
relies on a blob from a collector that is deleting it, and two processes of one host from fetching
the same bytes twice.
"""

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.errors import StoreError
from pp_precompile.store.failures import reason

FILE = "lock"

COLLECTING = 0
"""The byte that a collector locks alone, and writers lock together."""

_FLOCK = "hhqqi"
"""``struct flock`` of Linux on 64 bits: type, whence, start, length, process id."""

_TAKEN = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)

_POLL_SECONDS = 0.05


def byte_of(digest: Digest, suffix: str = "") -> int:
    """Return the byte of the lock file that stands for one object (never :data:`COLLECTING`).

    The suffix counts too: whoever fetches a manifest fetches its signatures before letting go.
    """
    return 1 + int(digest_bytes(f"{digest}{suffix}".encode())[:15], 16)


@contextlib.contextmanager
def hold(root: Path, byte: int, *, alone: bool, seconds: float, what: str) -> Iterator[None]:
    """Hold one byte of the lock file of ``root``, alone or together with others.

    Args:
        root: a folder that exists.
        byte: what is locked.
        alone: whether nobody else may hold it.
        seconds: most seconds to wait.
        what: what the lock is for, in an error: ``"delete blobs"``.

    Raises:
        StoreError: PPC210 if others hold it for too long, or the file system has no locks.
        OSError: if the lock file cannot be made or opened.
    """
    file = os.open(root / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o664)
    try:
        _wait(file, byte, alone=alone, seconds=seconds, what=what, root=root)
        yield
    finally:
        os.close(file)


@contextlib.contextmanager
def writing(root: Path, *, seconds: float) -> Iterator[None]:
    """Keep collectors out while a writer relies on what is there; writers don't exclude each other.

    Where the file system has no locks, the writer goes on without: collectors refuse to run there.

    Raises:
        StoreError: PPC210 if a collector runs for too long.
    """
    with contextlib.ExitStack() as stack:
        try:
            held = hold(root, COLLECTING, alone=False, seconds=seconds, what="write")
            stack.enter_context(held)
        except OSError as error:
            if error.errno not in (*_NO_LOCKS, *_NOT_WRITABLE, errno.ENOENT, errno.ENOTDIR):
                raise
        yield


def _wait(file: int, byte: int, *, alone: bool, seconds: float, what: str, root: Path) -> None:
    kind = fcntl.F_WRLCK if alone else fcntl.F_RDLCK
    wanted = struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0)
    end = time.monotonic() + seconds
    while True:
        try:
            # Of the open file, not of the process: threads of one process exclude each other too.
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return
        if time.monotonic() > end:
            raise StoreError(
                "PPC210",
                f"cannot {what}: another process works on {root}",
                expected=f"the lock {root / FILE} within {seconds:.0f} s",
                found="it is held",
                hint="try again when that process is done; a lock ends with its process",
            )
        time.sleep(_POLL_SECONDS)


def without_locks(root: Path, error: OSError) -> StoreError:
    """Return the error for a file system on which nothing can be locked."""
    return StoreError(
        "PPC210",
        f"{root} cannot be locked, so nothing in it can be deleted safely",
        expected=f"a file system with locks, and a folder that this user may write: {FILE}",
        found=reason(error),
        hint="mount the file system with locks, or run this on the host that serves it",
        exit_code=2,
    )
