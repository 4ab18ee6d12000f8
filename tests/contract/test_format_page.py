"""docs/format.md against the code: neither can change alone."""

import types
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from pp_precompile.contract.encoding import MAX_BYTES
from pp_precompile.contract.integers import Natural, Positive
from pp_precompile.contract.limits import MAX_ACTIONS, MAX_NAME, MAX_STAGES, Name
from pp_precompile.contract.manifest import FORMAT, MAX_MANIFEST_BYTES
from pp_precompile.contract.program import MAX_ENTRY_BYTES, ROLES, BlobSize, Kind
from pp_precompile.contract.schedule import Action, parse_actions
from pp_precompile.contract.signature import MAX_SIGNATURES_BYTES
from pp_precompile.contract.tensor import ITEM_BYTES
from tests.pages import DOCS, quoted, table, tables
from tests.strategies import structs

PAGE = "format.md"

WORDS = {str: "text", bytes: "bytes", bool: "boolean", int: "integer", type(None): "nil"}
RANGES = {"natural": Natural, "positive": Positive, "size": BlobSize}


def word(kind: Any) -> str:
    """Write the type of a field as the page does."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return word(args[0]) if _most_items(kind) else _constrained(kind, args[1])
    if isinstance(kind, NewType):
        return word(kind.__supertype__)
    if kind == Kind:
        return "kind"
    if origin is tuple:
        assert args[1] is ...
        return f"array of {word(args[0])}"
    if origin is dict:
        return f"map of {word(args[0])} to {word(args[1])}"
    if origin in (Union, types.UnionType):
        return " or ".join(sorted((word(arg) for arg in args), key=lambda text: text == "nil"))
    assert origin is not Literal, f"the page has no word for {kind}"
    return str(WORDS.get(kind) or kind.__name__)


def _most_items(kind: Any) -> int | None:
    """The most items of an array or a map; None for a type without such a limit of its own."""
    if get_origin(kind) in (Union, types.UnionType):
        return next((most for arg in get_args(kind) if (most := _most_items(arg))), None)
    meta = get_args(kind)[1] if get_origin(kind) is Annotated else None
    return None if meta is None or kind == Name else meta.max_length


def _constrained(kind: Any, meta: msgspec.Meta) -> str:
    if kind == Name:
        return "name"
    if meta.pattern is not None:
        return "digest"
    [name] = [name for name, known in RANGES.items() if known == kind]
    return name


@pytest.mark.parametrize("cls", structs(), ids=lambda cls: cls.__name__)
def test_every_field_of_every_struct_is_on_the_page(cls: type[msgspec.Struct]) -> None:
    [rows] = [rows for heading, rows in tables(PAGE) if heading == cls.__name__]
    assert rows[0] == ("field", "type", "meaning")
    hints = get_type_hints(cls, include_extras=True)
    assert [row[:2] for row in rows[1:]] == [
        (field.encode_name, word(hints[field.name])) for field in msgspec.structs.fields(cls)
    ]
    assert all(row[2] for row in rows[1:])


def test_the_page_has_no_struct_that_the_code_lacks() -> None:
    described = [heading for heading, rows in tables(PAGE) if rows[0][0] == "field"]
    assert sorted(described) == sorted(cls.__name__ for cls in structs())


@pytest.mark.parametrize("cls", structs(), ids=lambda cls: cls.__name__)
def test_every_struct_refuses_unknown_fields_and_is_frozen(cls: type[msgspec.Struct]) -> None:
    assert cls.__struct_config__.forbid_unknown_fields
    assert cls.__struct_config__.frozen
    assert not cls.__struct_config__.omit_defaults


def test_the_version() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert text.startswith(f"# The stored format, version {FORMAT}\n")
    assert f"This page describes `format` {FORMAT}." in text


def test_the_caps() -> None:
    caps = {name: int(cells[0]) for name, cells in table(PAGE, "structure", "most bytes").items()}
    assert caps == {
        "anything, so also a blob": MAX_BYTES,
        "manifest": MAX_MANIFEST_BYTES,
        "program entry": MAX_ENTRY_BYTES,
        "signatures": MAX_SIGNATURES_BYTES,
    }


def test_the_ranges_and_kinds() -> None:
    rows = table(PAGE, "type", "msgpack", "allowed")
    for name, kind in RANGES.items():
        meta = get_args(kind)[1]
        assert rows[name][1] == f"{meta.ge} to {meta.le}"
    assert quoted(rows["kind"][1]) == list(get_args(Kind))
    assert f"at most {MAX_NAME} characters" in rows["name"][1]
    assert set(rows) == {*WORDS.values(), *RANGES, "name", "digest", "kind"} - {"nil"}


def test_the_most_items() -> None:
    on_page = table(PAGE, "array or map", "most items")
    in_code = {
        f"{cls.__name__}.{name}": most
        for cls in structs()
        for name, hint in get_type_hints(cls, include_extras=True).items()
        if (most := _most_items(hint)) is not None
    }
    in_code["each array in ScheduleTable.stages_of_rank"] = MAX_STAGES
    in_code["all arrays in ScheduleTable.actions together"] = MAX_ACTIONS
    assert {name: int(cells[0]) for name, cells in on_page.items()} == in_code


def test_the_dtypes() -> None:
    rows = table(PAGE, "dtype", "bytes")
    assert {name: int(cells[0]) for name, cells in rows.items()} == ITEM_BYTES


def bullet(start: str) -> str:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    [found] = [part for part in text.split("\n- ") if part.startswith(start)]
    return found


def test_the_roles() -> None:
    keys, _, rest = bullet("The keys of `programs` are roles").partition(";")
    assert quoted(keys) == ["programs", *ROLES]
    assert quoted(rest)[0] == "forward"


def test_the_actions() -> None:
    example, *kinds = quoted(bullet("Each action has the form"))
    split = kinds.index("2UNSHARD")
    assert str(Action.parse(example)) == "2F0"
    assert all(Action.parse(f"2{kind}0").kind == kind for kind in kinds[:split])
    assert all(Action.parse(f"2{kind}").microbatch is None for kind in kinds[split + 1 :])
    assert len(kinds) == 8 + 1 + 3
    example, forward, *backwards = quoted(bullet("Two actions that may overlap"))
    assert list(map(str, parse_actions(example))) == ["2F4", "3B0"]
    for kind in backwards:
        assert len(parse_actions(f"(2{kind}0;2{forward}1)OVERLAP_F_B")) == 2
