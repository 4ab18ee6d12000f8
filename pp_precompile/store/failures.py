"""What an ``OSError`` of the file system means for a user of the store."""

import errno
import os
from pathlib import Path

from pp_precompile.contract.errors import StoreError

_CHOOSE = "choose another with --compile.precompile_artifact_dir or $PP_PRECOMPILE_DIR"

_FULL = (errno.ENOSPC, errno.EDQUOT)


def unwritable(path: Path, error: OSError) -> StoreError:
    """Return the error for a failed write below ``path``; what was stored before is unharmed."""
    what = "free some space in" if error.errno in _FULL else "check owner and mode of"
    return StoreError(
        "PPC202",
        f"cannot write {path}",
        expected="a folder that this user may write, with space left",
        found=reason(error),
        hint=f"{what} the store's folder, or {_CHOOSE}",
        exit_code=2,
    )


def unreadable(path: Path, error: OSError) -> StoreError:
    """Return the error for something of the store that is there but cannot be read."""
    return StoreError(
        "PPC201",
        f"cannot read {path}",
        expected="a store that this user may read",
        found=reason(error),
        hint=f"check the path and its mode, or {_CHOOSE}",
        exit_code=2,
    )


def reason(error: OSError) -> str:
    """Return the system's text for ``error`` with its symbol: ``Disk quota exceeded (EDQUOT)``."""
    if error.errno is None:
        return str(error)
    symbol = errno.errorcode.get(error.errno, str(error.errno))
    return f"{os.strerror(error.errno)} ({symbol})"
