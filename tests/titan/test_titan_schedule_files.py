"""A schedule file that cannot run, or is for another job, is refused by name at once."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.titan.schedule import schedule_table

SCHEDULES = Path(__file__).parents[2] / "schedules"


def _table(file: Path, name: str, stages: int, batch: int = 8) -> ScheduleTable:
    parallelism = SimpleNamespace(
        pipeline_parallel_degree=4,
        pipeline_parallel_microbatch_size=1,
        pipeline_parallel_schedule=name,
        pipeline_parallel_schedule_csv=str(file),
    )
    return schedule_table(parallelism, local_batch_size=batch, stages=stages, pp_group=None)


def test_a_files_table_is_what_the_file_says() -> None:
    file = SCHEDULES / "zb_h1_4x8.csv"
    table = _table(file, "1F1B", 4)
    cells = [line.split(",") for line in file.read_text().splitlines()]
    assert [list(row) for row in table.actions] == [[c for c in row if c] for row in cells]
    assert table.csv is not None
    assert table.stages_of_rank == ((0,), (1,), (2,), (3,))
    assert table.microbatches == 8


def _replace(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert text.count(old) == 1, old
        return text.replace(old, new)

    return edit


def _swap(one: str, other: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        swapped = {one: other, other: one}
        rows = [row.split(",") for row in text.splitlines()]
        return "\n".join(",".join(swapped.get(cell, cell) for cell in row) for row in rows)

    return edit


CASES: dict[str, tuple[str, str, int, Callable[[str], str], str, str]] = {
    # name: (file, named schedule, stages, change, code, part of the text)
    "an action permuted": (
        "zb_h1_4x8.csv", "1F1B", 4, _swap("1F0", "1I0"), "PPC522", "1F0 (rank 1",
    ),
    "a missing W": (
        "zb_h1_4x8.csv", "1F1B", 4, _replace("2W3", ""), "PPC521", "stage 2 does not do",
    ),
    "a missing receive": (
        "zb_h1_4x8_comms.csv", "1F1B", 4, _replace("2RECV_F1,", ""), "PPC523", "2RECV_F1",
    ),
    "a wrong V mapping": (
        "interleaved1f1b_4x8.csv", "ZBVZeroBubble", 8, str, "PPC527", "stages 0, 7 on rank 0",
    ),
    "a loop in place of single stages": (
        "interleaved1f1b_4x8.csv", "1F1B", 4, str, "PPC527", "stages 0, 4",
    ),
    "other ranks": ("zb_h1_2x8.csv", "1F1B", 4, str, "PPC003", "4 rows"),
    "other microbatches": ("zb_h1_4x16.csv", "1F1B", 4, str, "PPC003", "found:    16"),
    "no action": (
        "zb_h1_4x8.csv", "1F1B", 4, _replace("2W3", "2X3"), "PPC003", "'2X3' is not an action",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_does_not_fit_is_refused_by_name(case: str, tmp_path: Path) -> None:
    source, name, stages, edit, code, text = CASES[case]
    file = tmp_path / source
    file.write_text(edit((SCHEDULES / source).read_text()))
    with pytest.raises(UsageError) as raised:
        _table(file, name, stages)
    assert raised.value.code == code, raised.value
    assert text in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"PPC003: the schedule file .*none.csv cannot be read"):
        _table(tmp_path / "none.csv", "1F1B", 4)
