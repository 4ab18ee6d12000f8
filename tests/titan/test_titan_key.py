"""Every configuration field is part of a build's key, or excluded by name with a reason."""

import copy
import dataclasses
import fnmatch
from collections.abc import Iterator
from typing import Any

import pytest

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.factors import flatten
from pp_precompile.models import llama3
from pp_precompile.titan.exclusions import EXCLUDED, excluded
from pp_precompile.titan.trainer import PrecompileTrainer


def _config() -> PrecompileTrainer.Config:
    return llama3.llama3_debugmodel_sdpa()


def _factors(config: Any) -> dict[str, str]:
    """Return the factors of the whole configuration, as :mod:`titan.factors` takes them."""
    factors = flatten(config, "", excluded=lambda name: excluded(name.removeprefix(".")))
    return factors | flatten(config.model_spec.model, "model", excluded=excluded)


def _fields(value: Any, path: str) -> Iterator[tuple[str, Any, str]]:
    """Yield every field below a dataclass: its dotted name, its owner and its attribute."""
    for field in dataclasses.fields(value):
        name = f"{path}.{field.name}" if path else field.name
        inner = getattr(value, field.name)
        if name == "model_spec":
            continue  # its model is a root of its own
        yield name, value, field.name
        if dataclasses.is_dataclass(inner) and not isinstance(inner, type):
            yield from _fields(inner, name)
        elif isinstance(inner, list) and inner and dataclasses.is_dataclass(inner[0]):
            yield from _fields(inner[0], f"{name}[]")


def _other(value: Any) -> Any:
    """Return a value of the same kind that differs."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 2 + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return [*value, value[0]] if value else ["x"]
    if isinstance(value, tuple):
        return (*value, "x")
    return "something else"


ROOTS = {"": lambda config: config, "model": lambda config: config.model_spec.model}
NAMES = [(root, name) for root in ROOTS for name, _, _ in _fields(ROOTS[root](_config()), root)]


@pytest.mark.parametrize(("root", "name"), NAMES, ids=[f"{r or 'config'}:{n}" for r, n in NAMES])
def test_each_field_is_keyed_or_excluded(root: str, name: str) -> None:
    config = copy.deepcopy(_config())
    before = _factors(config)
    owner, attribute = next(
        (owner, attribute)
        for found, owner, attribute in _fields(ROOTS[root](config), root)
        if found == name
    )
    object.__setattr__(owner, attribute, _other(getattr(owner, attribute)))
    is_excluded = any(excluded(prefix) for prefix in _prefixes(name))
    assert (_factors(config) == before) == is_excluded


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


@pytest.mark.parametrize("pattern", EXCLUDED)
def test_each_exclusion_excludes_something_and_has_a_reason(pattern: str) -> None:
    names = [*(name for _, name in NAMES), "model_spec"]
    assert any(fnmatch.fnmatchcase(name, pattern) for name in names)
    assert len(EXCLUDED[pattern].split()) >= 1


def test_an_unknown_kind_of_value_fails_closed() -> None:
    config = _config()
    config.training.seq_len = object()
    with pytest.raises(PrecompileError) as raised:
        _factors(config)
    assert raised.value.code == "PPC005"
    assert "training.seq_len" in str(raised.value)


def test_two_configurations_of_one_name_have_one_key() -> None:
    assert _factors(_config()) == _factors(_config())
