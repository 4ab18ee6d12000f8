"""Open one object of a store without following links, and read no more than was promised.

Each folder on the way is opened relative to the one before and judged by what was opened, so that
nothing can be swapped between the check and the use.
"""

import contextlib
import errno
import os
from pathlib import Path

from pp_precompile.store import safety
from pp_precompile.store.failures import unreadable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking, or opening a pipe would wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_NOT_A_FILE = (errno.ELOOP, errno.ENXIO, errno.ENODEV)
"""What opening a link, a socket or a device without a driver says."""


def read_object(root: Path, parts: tuple[str, ...], *, limit: int) -> bytes | None:
    """Return the bytes of the file at ``parts`` below ``root``, or None if it is not there.

    Of a file with more than ``limit`` bytes, ``limit + 1`` are returned: enough to see it.

    Raises:
        StoreError: PPC201 if it cannot be read, PPC208 if a folder on the way is not safe.
        CorruptError: PPC208 if it is not a regular file, or everyone can write it.
    """
    path = root.joinpath(*parts)
    with contextlib.ExitStack() as stack:
        try:
            folder = _open_folders(root, parts[:-1], stack)
            file = _open_file(parts[-1], folder, path)
            stack.callback(os.close, file)
            status = os.fstat(file)
            safety.check_object(status, path)
            with open(file, "rb", closefd=False) as stream:
                return stream.read(min(status.st_size, limit) + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(path, error) from error


def check_folders(root: Path, *parts: str) -> None:
    """Check ``root`` and the folder at ``parts`` below it, as :func:`read_object` does.

    Raises:
        OSError: if one of them is not there or cannot be opened.
        StoreError: PPC208 if one is not safe.
    """
    with contextlib.ExitStack() as stack:
        _open_folders(root, parts, stack)


def _open_folders(root: Path, parts: tuple[str, ...], stack: contextlib.ExitStack) -> int:
    folder = os.open(root, _FOLDER)
    stack.callback(os.close, folder)
    root_status = os.fstat(folder)
    safety.check_root(root_status, root)
    path = root
    for part in parts:
        path = path / part
        folder = _open_folder(part, folder, path)
        stack.callback(os.close, folder)
        safety.check_folder(os.fstat(folder), path, root=root_status)
    return folder


def _open_folder(name: str, parent: int, path: Path) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise safety.no_folder(path) from error
        raise


def _open_file(name: str, folder: int, path: Path) -> int:
    try:
        return os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            raise safety.unsafe_object(path, "a link, socket or device") from error
        raise
