"""Canonical text for configuration values: the raw material of a build's key.

Every field counts unless it is excluded by name: a field that nobody thought of makes one build
too many, while a forgotten one would load wrong programs. A value without a canonical form is an
error for the same reason.
"""

import dataclasses
import enum
import functools
import inspect
import json
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from pp_precompile.contract.errors import PrecompileError, Where

Excluded = Callable[[str], bool]


def flatten(value: Any, path: str, *, excluded: Excluded = lambda _: False) -> dict[str, str]:
    """Return one factor for every leaf below ``value``.

    Args:
        value: dataclasses, containers and plain values, nested in any way.
        path: dotted name of ``value`` itself, for example ``"training"``.
        excluded: tells for a dotted name whether it, and all below it, is left out.

    Raises:
        PrecompileError: PPC005 for a value without a canonical form.
    """
    return dict(_walk(value, path, excluded))


def _walk(value: Any, path: str, excluded: Excluded) -> Iterator[tuple[str, str]]:
    if excluded(path):
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield path, _qualified(type(value))
        for field in dataclasses.fields(value):
            yield from _walk(getattr(value, field.name), f"{path}.{field.name}", excluded)
    elif isinstance(value, Mapping):
        yield path, f"mapping of {len(value)}"
        steps = {_step(key, path): item for key, item in value.items()}
        for step in sorted(steps):
            yield from _walk(steps[step], path + step, excluded)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield path, f"{type(value).__name__} of {len(value)}"
        yield from _walk_sequence(value, path, excluded)
    else:
        yield path, _leaf(value, path)


def _step(key: Any, path: str) -> str:
    """Return what a mapping's key adds to the path; unequal keys never add the same."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_leaf(key, path)}]"


def _walk_sequence(
    value: Sequence[Any], path: str, excluded: Excluded
) -> Iterator[tuple[str, str]]:
    """Yield the items; a run of equal ones once, under the range of its indices.

    A model of 126 equal layers would otherwise repeat every field of its layers 126 times.
    """
    anywhere = f"{path}[]"
    items = [dict(_walk(item, anywhere, excluded)) for item in value]
    start = 0
    while start < len(items):
        end = start + 1
        while end < len(items) and items[end] == items[start]:
            end += 1
        index = f"{start}" if end == start + 1 else f"{start}..{end - 1}"
        for name, text in items[start].items():
            yield f"{path}[{index}]{name.removeprefix(anywhere)}", text
        start = end


def _leaf(value: Any, path: str) -> str:
    # Before the plain values: an enum may be a str or an int as well.
    if isinstance(value, enum.Enum):
        # A combination of flags has no name before Python 3.11.
        return f"{_qualified(type(value))}.{value.name or value.value}"
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value)
    if isinstance(value, PurePath):
        return json.dumps(value.as_posix())
    if isinstance(value, functools.partial):
        return _partial(value, path)
    if type(value).__module__ == "torch" and type(value).__qualname__ in {"dtype", "device"}:
        return str(value)
    if isinstance(value, type) or inspect.isroutine(value):
        name = _importable(value)
        if name is not None:
            return name
    raise PrecompileError(
        "PPC005",
        f"the value of {path} has no canonical form, so no key can tell it from another",
        where=Where(field=path),
        expected="plain values, dataclasses, containers, classes, named functions and partials",
        found=f"{type(value).__module__}.{type(value).__qualname__}: {value!r}"[:200],
        hint="use a named function or a dataclass, or exclude the field in titan/exclusions.py",
        exit_code=2,
    )


def _partial(value: "functools.partial[Any]", path: str) -> str:
    args = [_leaf(item, path) for item in value.args]
    args += [f"{key}={_leaf(item, path)}" for key, item in sorted(value.keywords.items())]
    return f"partial({', '.join([_leaf(value.func, path), *args])})"


def _importable(value: Any) -> str | None:
    """Name a class, function or class method; None for one that its name does not tell all of.

    What was made inside a function may differ from call to call, and a bound method depends on the
    object that it is bound to.
    """
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type):
        return f"{_importable(owner)}.{value.__name__}" if _importable(owner) else None
    bound = owner is not None and not isinstance(owner, types.ModuleType)
    nameless = getattr(value, "__module__", None) is None or "<" in value.__qualname__
    return None if bound or nameless else _qualified(value)


def _qualified(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"
