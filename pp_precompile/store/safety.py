"""Whether a store may be loaded from: stored programs are code, so who can write them matters.

Pure decisions about the status of opened files and folders; ``reading`` asks before it reads. The
rules are those of docs/format.md: nothing in a store is writable for everyone, and nothing in it
is a link, a pipe or a device. The root itself may be reached through links, since stores get
mounted and linked, and may be a shared folder with the sticky bit, such as ``/tmp``.
"""

import os
import stat
from pathlib import Path

from pp_precompile.contract.errors import CorruptError, StoreError

_ROOT_USER = 0

_CHMOD = "stored programs are code: check what is in the folder, then take 'chmod o-w' to it"
_OWN = "it only has copies: delete it, or name a folder of your own with $PP_PRECOMPILE_CACHE"
_MOVE = "use a store in a folder to which not everyone can add"


def check_root(status: os.stat_result, path: Path) -> None:
    """Refuse a root in which everyone may replace what others made.

    Raises:
        StoreError: PPC208.
    """
    if _world_writable(status) and not status.st_mode & stat.S_ISVTX:
        raise _unsafe_folder(path, status, "a folder that not everyone can write", _CHMOD)


def check_cache(status: os.stat_result, path: Path) -> None:
    """Refuse a cache that anybody but this user could have filled: nobody named it as a store.

    Args:
        status: of the folder itself; of a link, the link's.
        path: the cache of one remote store.

    Raises:
        StoreError: PPC208.
    """
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or others:
        expected = f"a folder of user {os.geteuid()} that nobody else can write"
        raise _unsafe_folder(path, status, expected, _OWN)


def check_folder(status: os.stat_result, path: Path, *, root: os.stat_result) -> None:
    """Refuse a folder of the store in which everyone may add or replace programs.

    The sticky bit does not help here: it protects what is there, not against what is added. For
    the same reason a folder in a root that everyone may add to must come from a trusted user.

    Raises:
        StoreError: PPC208.
    """
    if _world_writable(status):
        raise _unsafe_folder(path, status, "a folder that not everyone can write", _CHMOD)
    trusted = (_ROOT_USER, os.geteuid(), root.st_uid)
    if _world_writable(root) and status.st_uid not in trusted:
        raise _unsafe_folder(path, status, "a folder made by this user or the root's owner", _MOVE)


def check_object(status: os.stat_result, path: Path) -> None:
    """Refuse anything but a regular file that not everyone can write.

    Raises:
        CorruptError: PPC208; a writer puts a proper file in its place.
    """
    if not stat.S_ISREG(status.st_mode):
        raise unsafe_object(path, stat.filemode(status.st_mode))
    if _world_writable(status):
        raise unsafe_object(path, f"{stat.filemode(status.st_mode)}, writable for everyone")


def no_folder(path: Path) -> StoreError:
    """Return the error for a link or file in a folder's place, which was not opened."""
    return StoreError(
        "PPC208",
        f"{path} is not safe to load code from",
        expected="a folder",
        found="a link or file",
        hint="link to the store's root if need be, never inside it; put the real folder there",
    )


def unsafe_object(path: Path, found: str) -> CorruptError:
    """Return the error for something in an object's place that must not be opened or believed."""
    return CorruptError(
        "PPC208",
        f"{path} is not safe to load code from",
        expected="a regular file that not everyone can write",
        found=found,
        hint="find out who put it there; delete it and build again",
    )


def _unsafe_folder(path: Path, status: os.stat_result, expected: str, hint: str) -> StoreError:
    return StoreError(
        "PPC208",
        f"{path} is not safe to load code from",
        expected=expected,
        found=f"{stat.filemode(status.st_mode)}, owned by user {status.st_uid}",
        hint=hint,
    )


def _world_writable(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IWOTH)
