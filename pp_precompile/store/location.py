"""Where the store is: one rule for every command and for training."""

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pp_precompile.contract.errors import UsageError

VARIABLE = "PP_PRECOMPILE_DIR"
CACHE_VARIABLE = "PP_PRECOMPILE_CACHE"

_BELOW_DUMP_FOLDER = "precompile"

_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE = "file://"


def is_url(location: str | Path) -> bool:
    """Tell whether a location is a URL; everything else is a folder."""
    return isinstance(location, str) and _SCHEME.match(location) is not None


def store_location(
    explicit: str | None,
    *,
    dump_folder: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Return the store's place: an absolute path that need not exist, or an fsspec URL.

    The first one that is set and not empty counts: ``explicit`` (what
    ``--compile.precompile_artifact_dir`` says), ``$PP_PRECOMPILE_DIR``, ``precompile`` below the
    job's dump folder.

    Raises:
        UsageError: PPC001 if none is set.
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
    if place.startswith(_FILE):
        place = place.removeprefix(_FILE)
    return place if is_url(place) else str(Path(place).expanduser().absolute())


def cache_folder(url: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return this host's folder for what it fetched from ``url``; it need not exist.

    It lies in ``$PP_PRECOMPILE_CACHE``, else in ``pp_precompile`` below ``$XDG_CACHE_HOME`` or
    ``~/.cache``, else in the folder for temporary files.
    """
    url = url.rstrip("/")
    name = re.sub(r"[^A-Za-z0-9]+", "-", url).strip("-")[-40:]
    name = f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"
    base = environ.get(CACHE_VARIABLE)
    if not base:
        home = environ.get("HOME")
        above = environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else None)
        if above is None:
            # Nothing between it and the shared folder: what lies there only its owner can exchange.
            return Path(tempfile.gettempdir()).absolute() / f"pp_precompile-{os.geteuid()}-{name}"
        base = os.path.join(above, "pp_precompile")
    return Path(base).absolute() / name
