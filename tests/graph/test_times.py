"""Files of times: what they may hold, several of them together, and everything that is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.errors import UsageError
from pp_precompile.graph.times import MAX_FILE_BYTES, UNIT_TIMES, read_times

SCHEMA = {"schema": "pp_precompile.times/1"}


def file(name: str = "a.json", **parts: object) -> tuple[str, bytes]:
    return name, json.dumps(SCHEMA | parts).encode()


def test_a_stage_s_own_time_comes_before_that_of_all() -> None:
    times = read_times([file(all={"F": 1, "B": 2.5}, stages={"3": {"F": 0.25}})])
    assert (times.of(3, "F"), times.of(3, "B"), times.of(0, "F")) == (0.25, 2.5, 1)
    assert (times.communication, times.unit) == (0, "second")


def test_each_rank_may_have_written_its_own_file() -> None:
    one, other = file("0", stages={"0": {"F": 1}, "2": {"F": 3}}), file("1", stages={"1": {"F": 2}})
    times = read_times([one, other, file("2", communication=0.5)])
    assert [times.of(stage, "F") for stage in range(3)] == [1, 2, 3]
    assert times.communication == 0.5


def test_units() -> None:
    assert [UNIT_TIMES.of(7, kind) for kind in "FBIW"] == [1, 2, 1, 1]
    assert UNIT_TIMES.unit == "unit"


REFUSED: dict[str, tuple[bytes, str]] = {
    "negative": (file(all={"F": -1})[1], ">= 0"),
    "a NaN": (b'{"schema": "pp_precompile.times/1", "all": {"F": NaN}}', "malformed"),
    "infinite": (b'{"schema": "pp_precompile.times/1", "all": {"F": 1e999}}', "range"),
    "huge": (file(all={"F": 1e9})[1], "<= 86400"),
    "huge digits": (b'{"schema": "pp_precompile.times/1", "all": {"F": 1' + b"0" * 9999, ""),
    "a text": (file(all={"F": "1"})[1], "Expected `float`"),
    "a kind that is none": (file(all={"X": 1})[1], "Invalid enum value"),
    "a stage that is none": (file(stages={"-1": {"F": 1}})[1], ">= 0"),
    "a name for a stage": (file(stages={"first": {"F": 1}})[1], "Expected `int`"),
    "a field of another version": (file(unit="ms")[1], "unknown field"),
    "another schema": (b'{"schema": "pp_precompile.times/2"}', "Invalid enum value"),
    "no schema": (b'{"all": {"F": 1}}', "missing required field"),
    "no object": (b"[]", "Expected `object`"),
    "not JSON": (b"\xff\x00", "malformed"),
    "empty": (b"", "truncated"),
    "deep": (b'{"schema":' + b"[" * 100_000, ""),
    "too large": (b" " * (MAX_FILE_BYTES + 1), "bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_none_is_refused(name: str) -> None:
    data, text = REFUSED[name]
    with pytest.raises(UsageError) as caught:
        read_times([("times.json", data)])
    assert (caught.value.code, caught.value.exit_code) == ("PPC007", 2)
    assert text in str(caught.value.found)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ([file("a", all={"F": 1}), file("b", all={"F": 2})], "all.F"),
        ([file("a", stages={"1": {"B": 1}}), file("b", stages={"1": {"B": 1}})], "stages.1.B"),
        ([file("a", communication=1), file("b", communication=1)], "communication"),
    ],
)
def test_a_time_that_two_files_give_is_refused(files: list[tuple[str, bytes]], place: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)PPC007: b .*{place} once more"):
        read_times(files)


def test_a_time_that_is_not_there_is_named() -> None:
    times = read_times([file(all={"F": 1}, stages={"2": {"B": 1}})])
    with pytest.raises(UsageError) as caught:
        times.of(5, "B")
    assert (caught.value.code, caught.value.where.stage) == ("PPC007", 5)
    assert "stages.5.B or all.B" in str(caught.value.expected)


@given(st.binary(max_size=60) | st.text().map(str.encode))
def test_bytes_without_the_schema_are_refused_whatever_they_are(data: bytes) -> None:
    with pytest.raises(UsageError, match="PPC007"):
        read_times([("times.json", data)])
