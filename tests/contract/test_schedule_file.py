"""Schedule files: read as written, or refused with the place of the fault."""

import contextlib
import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract import schedule_file
from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.schedule import parse_actions
from pp_precompile.contract.schedule_file import (
    MAX_FILE_BYTES,
    ScheduleFile,
    read_schedule_file,
)

SMALL = b"0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n"


def read(data: bytes) -> ScheduleFile:
    return read_schedule_file(data, what="the schedule file X")


def refusal(data: bytes) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(data)
    assert caught.value.code == "PPC003"
    assert caught.value.exit_code == 2
    assert "schedules/README.md" in str(caught.value.hint)
    return caught.value


def test_a_file_is_read_without_its_bubbles() -> None:
    assert read(SMALL) == ScheduleFile(
        digest=digest_bytes(SMALL),
        actions=(("0F0", "0F1", "0B0", "0B1"), ("1F0", "1B0", "1F1", "1B1")),
        communicates=False,
    )
    assert read(SMALL).microbatches == 2
    assert read(SMALL).stages_of_rank == ((0,), (1,))


def test_a_rank_may_hold_several_stages() -> None:
    held = read(b"3F0,0F0,3B0,0B0\n2F0,1F0,2B0,1B0\n").stages_of_rank
    assert held == ((0, 3), (1, 2))


@pytest.mark.parametrize("action", ["0SEND_F0", "0RECV_B0", "0UNSHARD", "0RESHARD", "0REDUCE_GRAD"])
def test_communication_is_noticed(action: str) -> None:
    assert read(f"0F0,{action},0B0\n".encode()).communicates


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        (" 0F0 ,0B0\t\n", ("0F0", "0B0")),
        ("0F0,0B0", ("0F0", "0B0")),
        ("0F0,0B0\r\n", ("0F0", "0B0")),
        ('"0F0",0B0\n', ("0F0", "0B0")),
        ("0F0,( 0F1 ; 0B0 )OVERLAP_F_B ,0B1\n", ("0F0", "(0F1;0B0)OVERLAP_F_B", "0B1")),
    ],
)
def test_an_action_has_one_text_whatever_the_spaces(text: str, cells: tuple[str, ...]) -> None:
    assert read(text.encode()).actions == (cells,)


REFUSED: dict[str, tuple[bytes, str, str]] = {
    # name: (the file, its place in the message, what was found)
    "not UTF-8": (b"0F0,\xff\n", "the schedule file X is", "can't decode byte 0xff"),
    "unclosed quote": (b'0F0,"0B0\n', "the schedule file X is", "unexpected end of data"),
    "no rows": (b"", "the schedule file X is", "an empty file"),
    "too large": (b"," * (MAX_FILE_BYTES + 1), "the schedule file X is", "16777217 bytes"),
    "not an action": (b"0F0,0B0\n1F0,1X0\n", "X, row 2, column 2,", "'1X0' is not an action"),
    "text behind an action": (b"0F0,0B0x\n", "X, row 1, column 2,", "'0B0x' is not an action"),
    "space inside": (b"0F0,0 B0\n", "X, row 1, column 2,", "'0 B0' is not an action"),
    "mark of a byte order": (b"\xef\xbb\xbf0F0,0B0\n", "X, row 1, column 1,", "is not an action"),
    "overlap of two forwards": (
        b"0F0,(0F1;0F2)OVERLAP_F_B\n",
        "X, row 1, column 2,",
        "does not overlap a forward with a backward",
    ),
    "stage on two ranks": (b"0F0,0B0\n1F0,0B0\n", "X, row 2, column 2,", "0B0 on rank 1"),
    "stage on two ranks, overlapped": (
        b"0F0,0B0\n1F0,(1F1;0B1)OVERLAP_F_B\n",
        "X, row 2, column 2,",
        "0B1 on rank 1",
    ),
    "stage missing": (b"0F0,0B0\n2F0,2B0\n", "the schedule file X is", "no action of stage 1"),
    "huge stage": (b"999999999F0\n", "the schedule file X is", "no action of stage 0"),
    "microbatch missing": (b"0F0,0F1,0B0\n1F1,1B0\n", "the schedule file X is", "no 1F0"),
    "microbatch missing at the end": (b"0F0,0F1\n1F0\n", "the schedule file X is", "no 1F1"),
    "huge microbatch": (b"0F0,0F999999999\n", "the schedule file X is", "no 0F1"),
    "no forward": (b"0B0\n", "the schedule file X is", "no 0F0"),
    "empty row": (b"0F0,0B0\n\n1F0,1B0\n", "X, row 2, is", "an empty row"),
    "row of bubbles": (b"0F0,0B0\n,,\n", "X, row 2, is", "an empty row"),
    "bubble beside communication": (
        b"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,,1B0,1SEND_B0\n",
        "X, row 2, column 3,",
        "an empty cell",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_refused_with_its_place(name: str) -> None:
    data, place, found = REFUSED[name]
    error = refusal(data)
    assert place in error.message
    assert error.message.endswith("is not a schedule")
    assert found in str(error.found)
    assert error.expected


@pytest.mark.parametrize("cell", ["(" + " " * 100_000, "(0F0;" + " " * 100_000 + "0B0)"])
def test_a_cell_of_spaces_is_refused_at_once(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropping its padding would take minutes, and hours for a file of such cells."""

    class Slow:
        def sub(self, new: str, text: str) -> str:
            assert len(text) < 1000
            return text

    monkeypatch.setattr(schedule_file, "_PADDING", Slow())
    with pytest.raises(UsageError, match="is not an action"):
        read(f"{cell}x\n".encode())


def test_a_megabyte_of_nonsense_is_not_quoted_whole() -> None:
    assert len(str(refusal(b"x" * 100_000))) < 1000


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    """Tables of any order: what ``graph`` would refuse is read all the same."""
    ranks, rounds = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    count = draw(st.integers(1, 3))
    rows = []
    for rank in range(ranks):
        cells = [
            f"{stage}{kind}{number}"
            for stage in range(rank, ranks * rounds, ranks)
            for kind in ("F", draw(st.sampled_from(["B", "I", "W"])))
            for number in range(count)
        ]
        cells += draw(st.lists(st.just(""), max_size=3))
        cells += draw(st.lists(st.just(f"({rank}F0;{rank}B0)OVERLAP_F_B"), max_size=1))
        rows.append(draw(st.permutations(cells)))
    return rows


def write(rows: list[list[str]]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


@given(tables())
def test_what_is_written_is_read_again(rows: list[list[str]]) -> None:
    found = read(write(rows))
    assert [list(cells) for cells in found.actions] == [
        [cell for cell in row if cell] for row in rows
    ]
    assert read(write([list(cells) for cells in found.actions])).actions == found.actions


CELLS = st.text('0123 ();,\n"FBIWSENDRCVUHARGOLP_x', max_size=40)


@given(st.binary(max_size=40) | CELLS.map(str.encode))
def test_any_bytes_are_a_table_or_an_error(data: bytes) -> None:
    with contextlib.suppress(UsageError):
        _is_table(read(data))


def _is_table(found: ScheduleFile) -> None:
    assert all(found.actions)
    assert all(parse_actions(cell) for cells in found.actions for cell in cells)
    assert sorted(s for held in found.stages_of_rank for s in held) == list(
        range(sum(map(len, found.stages_of_rank)))
    )
