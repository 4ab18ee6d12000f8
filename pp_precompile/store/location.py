"""Which folder is the store: one rule for every command and for training."""

import os
from collections.abc import Mapping
from pathlib import Path

from pp_precompile.contract.errors import UsageError

VARIABLE = "PP_PRECOMPILE_DIR"

_BELOW_DUMP_FOLDER = "precompile"


def store_location(
    explicit: str | None,
    *,
    dump_folder: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Return the store's folder, as an absolute path that need not exist.

    The first one that is set and not empty counts: ``explicit`` (what
    ``--compile.precompile_artifact_dir`` says), ``$PP_PRECOMPILE_DIR``, ``precompile`` below the
    job's dump folder.

    Raises:
        UsageError: PPC001 if none is set, or it is not a local folder.
    """
    place = explicit or environ.get(VARIABLE)
    if not place and dump_folder:
        place = os.path.join(dump_folder, _BELOW_DUMP_FOLDER)
    if not place:
        raise UsageError(
            "PPC001",
            "no store was named",
            expected=f"--compile.precompile_artifact_dir, ${VARIABLE} or a dump folder",
            found="none of them",
            hint="add --compile.precompile_artifact_dir DIR",
        )
    if "://" in place:
        raise UsageError(
            "PPC001",
            "the store must be a local folder",
            expected="a path",
            found=place,
            hint="copy the store to this host, or mount it",
        )
    return Path(place).expanduser().absolute()
