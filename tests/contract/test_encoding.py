"""Canonical encoding: one value, one byte string; nothing else is read."""

import enum
import tracemalloc
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.encoding import decode, encode
from pp_precompile.contract.errors import CorruptError, PrecompileError
from pp_precompile.contract.program import BlobRef, ProgramBlob, ProgramEntry
from tests.ids import shown
from tests.manifests import make_manifest, refer, some_digest
from tests.strategies import ROOTS, TEXT, mutations, of_type, structs

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("cls", structs(), ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_every_struct_comes_back_as_it_was(cls: type, data: st.DataObject) -> None:
    value = data.draw(of_type(cls))
    assert decode(encode(value), cls, what="it") == value


@given(PLAIN)
def test_encoding_is_plain_msgpack(value: Any) -> None:
    assert msgpack.unpackb(encode(value)) == value


@given(st.dictionaries(TEXT, st.integers(0, 9), min_size=2, max_size=5), st.randoms())
def test_order_of_insertion_does_not_show(value: dict[str, int], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert encode(dict(shuffled)) == encode(value)


@given(st.data())
def test_unequal_values_have_unequal_bytes(data: st.DataObject) -> None:
    one, other = (data.draw(of_type(ProgramEntry)) for _ in range(2))
    assert (encode(one) == encode(other)) == (one == other)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1.0, TypeError),
        ([1, {"a": 0.5}], TypeError),
        ({1: "a"}, TypeError),
        ({b"a": 1}, TypeError),
        (object(), TypeError),
        (msgspec.msgpack.Ext(1, b""), TypeError),
        (2**64, OverflowError),
        ("\ud800", ValueError),
    ],
    ids=shown,
)
def test_values_without_a_place_in_the_format(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode(value)


def test_enums_are_stored_as_their_values() -> None:
    class Color(enum.Enum):
        RED = "red"

    assert encode(Color.RED) == encode("red")


def test_the_cap_is_on_bytes_before_anything_is_read() -> None:
    data = encode(refer(b"x"))
    assert decode(data, BlobRef, what="it", limit=len(data)) == refer(b"x")
    with pytest.raises(CorruptError) as caught:
        decode(b"\xc1" * len(data), BlobRef, what="the ref", limit=len(data) - 1)
    assert f"{len(data)} bytes, the most allowed is {len(data) - 1}" in str(caught.value)


def test_the_error_names_what_was_read_and_what_to_do() -> None:
    with pytest.raises(CorruptError) as caught:
        decode(b"", BlobRef, what="reference 7", code="PPC204")
    text = str(caught.value)
    assert text.startswith("PPC204: reference 7 is not in the stored format")
    assert "expected: canonical msgpack of BlobRef" in text
    assert "found:    DecodeError: Input data was truncated" in text
    assert "next:     delete it and build again" in text


def test_a_hostile_key_does_not_fill_the_screen() -> None:
    data = msgpack.packb({"x" * 100_000: 1})
    with pytest.raises(CorruptError) as caught:
        decode(data, BlobRef, what="it")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
    ],
    ids=["array", "map", "bytes", "text"],
)
@pytest.mark.parametrize("cls", [list[int], dict[str, str], bytes, str], ids=str)
def test_huge_declared_lengths_are_not_allocated(data: bytes, cls: type) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError):
            decode(data, cls, what="it")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cls", ROOTS, ids=lambda cls: cls.__name__)
@given(data=st.binary(max_size=64))
def test_random_bytes_are_refused_by_code(cls: type, data: bytes) -> None:
    with pytest.raises(CorruptError):
        decode(data, cls, what="it")


ENTRY = ProgramEntry(key=some_digest("key"), blob=refer(b"blob"), kernels=3)
BLOB = ProgramBlob(code=b"code", kernels={"a": b"1", "b": b"2"})


@pytest.mark.parametrize("value", [ENTRY, BLOB, make_manifest(1)], ids=lambda v: type(v).__name__)
@given(data=st.data())
def test_mutated_bytes_are_refused_or_canonical(value: Any, data: st.DataObject) -> None:
    mutated = data.draw(mutations(st.just(encode(value))))
    try:
        read = decode(mutated, type(value), what="it")
    except PrecompileError:
        return
    assert encode(read) == mutated
