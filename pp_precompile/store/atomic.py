"""Write a file so that readers see the old one or the complete new one, never a part.

Knows nothing of what the bytes mean. A writer that dies leaves at most a temporary file, whose
name no reader takes for an object.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from pp_precompile.store.failures import unwritable

# Never writable for others, whatever the umask: such a store would be refused at loading.
_FILE_MODE = 0o664
_FOLDER_MODE = 0o775
_PRIVATE_MODE = 0o600
_PRIVATE_FOLDER_MODE = 0o700

# Readable for the group, whatever the umask: teams share stores.
_FILE_GROUP = stat.S_IRGRP
_FOLDER_GROUP = stat.S_IRGRP | stat.S_IXGRP


def write(path: Path, data: bytes, *, private: bool = False) -> None:
    """Put ``data`` at ``path``, replacing what is there, and wait until it is on the disk.

    Args:
        path: where it goes; missing folders are made.
        data: the whole content.
        private: whether only the owner may read it, whatever the umask.

    Raises:
        StoreError: PPC202 if any step fails; then ``path`` holds what it held before, or (if only
            the last step failed) all of ``data``, and a second try can succeed.
    """
    temporary = _temporary(path)
    try:
        make_folder(path.parent)
        _write_temporary(temporary, data, private=private)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise unwritable(path, error) from error
        raise


def remove(path: Path) -> None:
    """Delete the file at ``path``; that another process was faster is no error.

    Raises:
        StoreError: PPC202 if it cannot be deleted.
    """
    remove_all([path])


def remove_all(paths: Iterable[Path]) -> None:
    """Delete files, then wait once for each folder until their names are gone from the disk.

    Raises:
        StoreError: PPC202 if one cannot be deleted; those before it are gone by then.
    """
    folders: set[Path] = set()
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unwritable(path, error) from error
        folders.add(path.parent)
    for folder in sorted(folders):
        try:
            sync_folder(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unwritable(folder, error) from error


def check_writable(folder: Path) -> None:
    """Write and delete a small file in ``folder``: access bits do not tell of full disks.

    Raises:
        StoreError: PPC202 if that fails.
    """
    temporary = _temporary(folder / "probe")
    try:
        _write_temporary(temporary, b"probe")
        os.unlink(temporary)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise unwritable(folder, error) from error


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make the folder ``path`` and its parents where they are missing, durably.

    Args:
        path: the folder.
        private: whether only the owner may look into it, whatever the umask; not its parents.

    Raises:
        OSError: if one of them cannot be made.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        os.mkdir(path, _PRIVATE_FOLDER_MODE if private else _FOLDER_MODE)
    except FileExistsError:
        # Another process made it in between; anything but a folder stays an error.
        if path.is_dir():
            return
        raise
    if not private:
        _open_to_group(path, os.stat(path), _FOLDER_GROUP)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in the folder ``path`` are on the disk.

    Raises:
        OSError: if the system reports that they are not.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError as error:
        # Some network file systems cannot sync a folder: their renames are durable as they are.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


def _temporary(path: Path) -> Path:
    # The process id alone would not do: hosts and containers that share the store count alike.
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.tmp")


def _write_temporary(path: Path, data: bytes, *, private: bool = False) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(path, flags, _PRIVATE_MODE if private else _FILE_MODE)
    try:
        if not private:
            _open_to_group(file, os.fstat(file), _FILE_GROUP)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _open_to_group(place: int | Path, status: os.stat_result, bits: int) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & bits != bits:
        # We own what we just made: a refusal means that the file system has no modes to set.
        with contextlib.suppress(PermissionError):
            os.chmod(place, mode | bits)
