"""Errors: their text, their exit codes, and their way between processes."""

import pickle

import pytest

from pp_precompile.contract.errors import CODES, CorruptError, PrecompileError, UsageError, Where


def make(cls: type[PrecompileError] = PrecompileError) -> PrecompileError:
    return cls(
        "PPC104",
        "the inputs differ",
        where=Where(stage=2, rank=0, field="mask"),
        expected=(1, 2),
        found=ValueError("nothing"),
        hint="pass it",
    )


def test_text_has_one_line_for_each_part() -> None:
    assert str(make()).splitlines() == [
        "PPC104: the inputs differ (stage 2, rank 0, field mask)",
        "  expected: (1, 2)",
        "  found:    nothing",
        "  next:     pass it",
    ]


def test_parts_that_are_not_known_are_left_out() -> None:
    assert str(PrecompileError("PPC104", "they differ")) == "PPC104: they differ"
    assert str(PrecompileError("PPC104", "x", found=0)) == "PPC104: x\n  found:    0"


def test_an_unknown_code_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        PrecompileError("PPC999", "x")


@pytest.mark.parametrize(
    ("cls", "code"), [(PrecompileError, 1), (CorruptError, 1), (UsageError, 2)]
)
def test_exit_codes(cls: type[PrecompileError], code: int) -> None:
    assert make(cls).exit_code == code
    assert cls("PPC001", "x", exit_code=7).exit_code == 7


@pytest.mark.parametrize("cls", [PrecompileError, CorruptError, UsageError])
def test_errors_travel_between_processes(cls: type[PrecompileError]) -> None:
    error = make(cls)
    error.found = lambda: None  # a thing that cannot be pickled
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (copy.code, copy.where, copy.hint) == (error.code, error.where, error.hint)
    assert (copy.expected, copy.exit_code) == ("(1, 2)", error.exit_code)
    assert copy.found == str(error.found)


def test_codes_are_grouped_by_their_first_digit() -> None:
    assert list(CODES) == sorted(CODES)
    assert len(set(CODES.values())) == len(CODES)
