"""The sources that a model is made of: its own files, what they import, and installed packages.

Everything is found by reading files, so that nothing is imported for it and each process of a job
finds the same. Only imports that are written as statements count, at the top of a file or inside
functions; what ``importlib`` brings in by a computed name does not.
"""

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.installed import package_digest

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def source_digests(modules: Mapping[str, Path], *, known: frozenset[str]) -> dict[str, str]:
    """Return digests of all sources that ``modules`` reach, by module or package name.

    A file outside of the installed packages counts by itself, and so does every such file that it
    imports, and that those import. An installed package counts as a whole
    (:func:`~pp_precompile.contract.installed.package_digest`), and what it imports does not.

    Args:
        modules: the source file of each module to begin with, by dotted name.
        known: top-level packages that are left out unless they are in ``modules``, and whose
            imports are not followed, since something else identifies them.

    Returns:
        The sha256 of each, in hex.

    Raises:
        OSError: if a file of ``modules`` cannot be read.
    """
    known = known | sys.stdlib_module_names
    found: dict[str, str] = {}
    waiting = dict(modules)
    while waiting:
        name, path = waiting.popitem()
        top = name.partition(".")[0]
        if _INSTALLED & set(path.parts):
            found[top] = package_digest(top) or digest_bytes(path.read_bytes())
            continue
        text = path.read_bytes()
        found[name] = digest_bytes(text)
        if top in known:
            continue
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for imported in _with_packages([package, *_imported(text, package)]):
            skipped = imported in found or imported.partition(".")[0] in known
            if not skipped and (file := _file(imported)) is not None:
                waiting[imported] = file
    return found


def _with_packages(names: Iterable[str]) -> Iterator[str]:
    """Yield each dotted name after those of the packages above it, which run before it."""
    for name in names:
        parts = name.split(".") if name else []
        yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def _imported(text: bytes, package: str) -> Iterator[str]:
    """Yield the dotted names that a source may import."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node, package)


def _from(node: ast.ImportFrom, package: str) -> list[str]:
    """Return the module of ``from module import names``, and the names: each may be a module."""
    base = node.module or ""
    if node.level:
        above = package.split(".")
        if node.level > len(above):
            return []
        kept = above[: len(above) - node.level + 1]
        base = ".".join([*kept, *([base] if base else [])])
    return [name for name in (base, *(f"{base}.{alias.name}" for alias in node.names)) if base]


def _file(name: str) -> Path | None:
    """Return the source file of a module; None if there is none, or no such module."""
    parts = name.split(".")
    try:
        spec: ModuleSpec | None = importlib.util.find_spec(parts[0])
    except ValueError:  # such as __main__, which has no spec
        return None
    for end in range(1, len(parts)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[: end + 1]), spec.submodule_search_locations)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)
