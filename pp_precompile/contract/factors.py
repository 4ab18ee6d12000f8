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
        for key in sorted(value, key=str):
            yield from _walk(value[key], f"{path}.{key}", excluded)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield path, f"{type(value).__name__} of {len(value)}"
        yield from _walk_sequence(value, path, excluded)
    else:
        yield path, _leaf(value, path)


def _walk_sequence(
    value: Sequence[Any], path: str, excluded: Excluded
) -> Iterator[tuple[str, str]]:
    """Yield the items; a run of equal ones once, under the range of its indices.

    A model of 126 equal layers would otherwise repeat every field of its layers 126 times.
    """
    start = 0
    while start < len(value):
        first = dict(_walk(value[start], "", excluded=lambda name: excluded(f"{path}[]{name}")))
        end = start + 1
        while end < len(value) and first == dict(
            _walk(value[end], "", excluded=lambda name: excluded(f"{path}[]{name}"))
        ):
            end += 1
        index = f"{start}" if end == start + 1 else f"{start}..{end - 1}"
        yield from ((f"{path}[{index}]{name}", text) for name, text in first.items())
        start = end


def _leaf(value: Any, path: str) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, enum.Enum):
        return f"{_qualified(type(value))}.{value.name}"
    if isinstance(value, PurePath):
        return json.dumps(value.as_posix())
    if isinstance(value, type):
        return _qualified(value)
    if isinstance(value, functools.partial):
        return _partial(value, path)
    if type(value).__module__ == "torch" and type(value).__qualname__ in {"dtype", "device"}:
        return str(value)
    if inspect.isroutine(value) and "<" not in value.__qualname__:
        return _qualified(value)
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


def _qualified(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"
