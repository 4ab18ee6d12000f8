"""What is installed: versions of distributions, and digests of what packages are made of.

Read from metadata and files, so that nothing is imported. ``RECORD`` lists every installed
file with its sha256 (`Recording installed projects
<https://packaging.python.org/en/latest/specifications/recording-installed-packages/>`_).
"""

import importlib.metadata
import importlib.util
from pathlib import Path

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.encoding import encode

_BY_INSTALLERS = frozenset(
    {
        "INSTALLER",
        "RECORD",
        "REQUESTED",
        "direct_url.json",
        "provenance_url.json",
        "uv_build.json",
        "uv_cache.json",
    }
)
"""Files of ``*.dist-info`` that tell how a wheel came here: pip or uv, asked for or needed."""


def installed_version(distribution: str) -> str:
    """Return a distribution's version, empty if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def package_digest(name: str) -> str:
    """Return the sha256, in hex, of what an importable package is made of.

    That is the list of its wheel's files (:func:`wheel_files`) where it runs from one. From a
    checkout, in editable mode or on ``PYTHONPATH``, it is its Python sources: no list says
    when those change.

    Args:
        name: the package's name, which is its distribution's too.

    Returns:
        The digest; empty if there is no such package.
    """
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:
        return ""
    if spec is None or not spec.submodule_search_locations:
        return ""
    folders = [Path(folder) for folder in spec.submodule_search_locations]
    lines = _listed(name, folders)
    return digest_bytes("\n".join(lines).encode()) if lines else _sources(folders)


def _listed(name: str, folders: list[Path]) -> list[str]:
    """Return the wheel's files if the package is imported from where they were installed."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return []
    installed = Path(str(distribution.locate_file(name))).resolve()
    lines = wheel_files(distribution.read_text("RECORD") or "")
    here = [folder.resolve() for folder in folders] == [installed]
    return lines if here and any(line.startswith(f"{name}/") for line in lines) else []


def _sources(folders: list[Path]) -> str:
    """Digest every Python source below ``folders``, by relative path."""
    paths = [(folder, path) for folder in folders for path in folder.rglob("*.py")]
    texts = {str(path.relative_to(folder)): path.read_bytes() for folder, path in paths}
    return digest_bytes(encode(texts))


def wheel_files(record: str) -> list[str]:
    """Return the lines of a RECORD that every installation of the same wheel has, sorted.

    Left out is what differs with the place and the installer: scripts, whose first line names the
    environment's Python, compiled bytecode, and the installer's own notes.
    """
    return sorted(line for line in record.splitlines() if _of_wheel(line.partition(",")[0]))


def _of_wheel(path: str) -> bool:
    folder, _, name = path.strip('"').rpartition("/")
    if folder.endswith(".dist-info") and name in _BY_INSTALLERS:
        return False
    return bool(name) and not path.startswith(("..", "/")) and not name.endswith(".pyc")
