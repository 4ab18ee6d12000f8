"""Factors: every difference shows, what has no canonical form is refused."""

import enum
import functools
import importlib
import operator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.factors import flatten
from pp_precompile.contract.key import build_id, differing
from tests.ids import shown
from tests.strategies import TEXT


class Color(enum.Enum):
    RED = "red"


class Fruit(str, enum.Enum):
    APPLE = "apple"


class Size(enum.IntEnum):
    SMALL = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Norm:
    eps: float = 1e-5


@dataclass
class Layer:
    width: int = 8
    norm: Norm = field(default_factory=Norm)


@dataclass
class Model:
    layers: list[Layer]
    name: str = "m"


class Base:
    @classmethod
    def make(cls) -> None: ...

    @staticmethod
    def plain() -> None: ...

    def method(self) -> None: ...


class Derived(Base): ...


def scale(x: Any, by: Any = 1.0) -> Any:
    return x * by


HERE = __name__


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (float("inf"), "Infinity"),
        ("1", '"1"'),
        ("grün", '"gr\\u00fcn"'),
        ("\udcff", '"\\udcff"'),
        (Color.RED, f"{HERE}:Color.RED"),
        (Fruit.APPLE, f"{HERE}:Fruit.APPLE"),
        (Size.SMALL, f"{HERE}:Size.SMALL"),
        (Path("a") / "b", '"a/b"'),
        (PurePosixPath("/c"), '"/c"'),
        (Layer, f"{HERE}:Layer"),
        (scale, f"{HERE}:scale"),
        (len, "builtins:len"),
        (operator.add, "_operator:add"),
        (Base.plain, f"{HERE}:Base.plain"),
        (Base.make, f"{HERE}:Base.make"),
        (Derived.make, f"{HERE}:Derived.make"),
        (dict.fromkeys, "builtins:dict.fromkeys"),
        (functools.partial(scale, 1, by=2.0), f"partial({HERE}:scale, 1, by=2.0)"),
        (functools.partial(max, key=Layer), f"partial(builtins:max, key={HERE}:Layer)"),
    ],
    ids=shown,
)
def test_every_kind_of_leaf(value: Any, text: str) -> None:
    assert flatten(value, "x") == {"x": text}


def test_flags_in_combination_are_told_apart() -> None:
    both = flatten(Access.READ | Access.WRITE, "x")
    assert len({both["x"], flatten(Access.READ, "x")["x"], flatten(Access.WRITE, "x")["x"]}) == 3


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_torch_dtypes_and_devices(name: str) -> None:
    torch = importlib.import_module("torch")
    assert flatten(getattr(torch, name), "x") == {"x": f"torch.{name}"}
    assert flatten(torch.device("cpu", 1), "x") == {"x": "cpu:1"}


def test_dataclasses_give_a_factor_for_every_field() -> None:
    assert flatten(Layer(), "layer") == {
        "layer": f"{HERE}:Layer",
        "layer.width": "8",
        "layer.norm": f"{HERE}:Norm",
        "layer.norm.eps": "1e-05",
    }


def test_runs_of_equal_items_are_written_once() -> None:
    model = Model([Layer(), Layer(), Layer(width=9), Layer()])
    names = [name for name in flatten(model, "m") if name.endswith("width")]
    assert names == ["m.layers[0..1].width", "m.layers[2].width", "m.layers[3].width"]
    assert flatten(model, "m")["m.layers"] == "list of 4"


def test_runs_inside_runs() -> None:
    assert flatten([[1, 1], [1, 1], [2]], "x") == {
        "x": "list of 3",
        "x[0..1]": "list of 2",
        "x[0..1][0..1]": "1",
        "x[2]": "list of 1",
        "x[2][0]": "2",
    }


def test_mappings() -> None:
    value = {"b": 1, "a": [2], "not a name": 3, 4: 5}
    assert flatten(value, "x") == {
        "x": "mapping of 4",
        "x.a": "list of 1",
        "x.a[0]": "2",
        "x.b": "1",
        'x["not a name"]': "3",
        "x[4]": "5",
    }
    reordered = dict(reversed(value.items()))
    assert flatten(reordered, "x") == flatten(value, "x")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (1, "1"),
        (None, "null"),
        (0.0, -0.0),
        ([1], (1,)),
        ([1, 1, 2], [1, 2, 2]),
        ([[1], [1]], [[1, 1]]),
        ([], None),
        ("apple", Fruit.APPLE),
        (1, Size.SMALL),
        ({"a": {"b": 1}}, {"a.b": 1}),
        ({1: "a"}, {"1": "a"}),
        ({"a.b": 1, "a": {"b": 2}}, {"a.b": 2, "a": {"b": 1}}),
        (Base.make, Derived.make),
        (Norm(), {"eps": 1e-5}),
        (Norm(eps=1e-5), Norm(eps=1e-6)),
        (functools.partial(scale, 1), functools.partial(scale, "1")),
        (functools.partial(scale, by=1), scale),
    ],
    ids=shown,
)
def test_values_that_differ_have_factors_that_differ(one: Any, other: Any) -> None:
    assert build_id(flatten(one, "x")) != build_id(flatten(other, "x"))


def local_function() -> Any:
    def inner() -> None: ...

    return inner


def local_class() -> type:
    class Inner: ...

    return Inner


@pytest.mark.parametrize(
    "value",
    [
        object(),
        lambda: None,
        local_function(),
        local_class(),
        Base().method,
        [].append,
        str.upper,
        {1, 2},
        b"bytes",
        1j,
        functools.partial(scale, object()),
        functools.partial(Base().method),
        {object(): 1},
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_a_canonical_form_are_refused(value: Any) -> None:
    with pytest.raises(PrecompileError) as caught:
        flatten(Model([], name=value), "model")
    error = caught.value
    assert (error.code, error.exit_code, error.where.field) == ("PPC005", 2, "model.name")
    assert "model.name has no canonical form" in str(error)
    assert "use a named function or a dataclass, or exclude the field" in str(error)


def test_a_refused_value_in_a_sequence_is_named_with_its_whole_path() -> None:
    with pytest.raises(PrecompileError) as caught:
        flatten(Model([Layer(norm=Norm(eps=1j))]), "model")  # type: ignore[arg-type]
    assert caught.value.where.field == "model.layers[].norm.eps"


def test_exclusions_cover_all_below_and_reach_into_sequences() -> None:
    model = Model([Layer(), Layer(norm=Norm(eps=1.0))])
    asked: list[str] = []

    def excluded(name: str) -> bool:
        asked.append(name)
        return name in {"model.layers[].norm", "model.name"}

    assert flatten(model, "model", excluded=excluded) == {
        "model": f"{HERE}:Model",
        "model.layers": "list of 2",
        "model.layers[0..1]": f"{HERE}:Layer",
        "model.layers[0..1].width": "8",
    }
    assert "model.layers[].norm.eps" not in asked


def test_an_excluded_value_needs_no_canonical_form() -> None:
    assert flatten(object(), "x", excluded=lambda name: name == "x") == {}


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, all the way down; the order of mappings does not count."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


@given(VALUES, VALUES)
def test_factors_agree_exactly_where_values_do(one: Any, other: Any) -> None:
    assert (flatten(one, "x") == flatten(other, "x")) == same(one, other)


@given(st.lists(LEAVES, max_size=6), st.integers(0, 5), LEAVES)
def test_a_changed_item_changes_the_factors(items: list[Any], index: int, new: Any) -> None:
    changed = [*items[:index], new, *items[index + 1 :]]
    assert (flatten(items, "x") == flatten(changed, "x")) == same(items, changed)


def test_differing_names_what_one_side_lacks() -> None:
    ours = {"same": "1", "other": "2", "ours": "3"}
    theirs = {"same": "1", "other": "4", "theirs": "5"}
    assert differing(ours, theirs) == {
        "other": ("2", "4"),
        "ours": ("3", None),
        "theirs": (None, "5"),
    }


@given(st.dictionaries(TEXT, TEXT, max_size=4), st.dictionaries(TEXT, TEXT, max_size=4))
def test_builds_differ_exactly_where_factors_do(one: dict[str, str], other: dict[str, str]) -> None:
    assert (build_id(one) == build_id(other)) == (differing(one, other) == {})
