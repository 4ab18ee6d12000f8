"""The files of schedules/ for tests, each with the schedule that the README names beside it."""

from pathlib import Path

from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.schedule_file import ScheduleFile, read_schedule_file
from tests.pages import tables

FOLDER = Path(__file__).parent.parent / "schedules"

_README = "../schedules/README.md"

ROWS = {
    row[0].partition("]")[0].strip("["): row[1:]
    for _, rows in tables(_README)
    if rows[0][0] == "file"
    for row in rows[1:]
}
"""The README's table: the cells behind each file's name."""

FILES = sorted(path.name for path in FOLDER.glob("*.csv"))


def read(name: str) -> ScheduleFile:
    """Read one of the files."""
    return read_schedule_file((FOLDER / name).read_bytes(), what=name)


def table(name: str) -> ScheduleTable:
    """Return the schedule of a job that names one of the files."""
    return read(name).table(ROWS[name][0], microbatch_size=1)


def one_f_one_b(ranks: int, microbatches: int) -> ScheduleTable:
    """Return 1F1B with one stage a rank, for sizes that no file has."""
    actions = []
    for rank in range(ranks):
        ahead = min(ranks - rank - 1, microbatches)
        texts = [f"{rank}F{mb}" for mb in range(ahead)]
        for mb in range(microbatches - ahead):
            texts += [f"{rank}F{ahead + mb}", f"{rank}B{mb}"]
        texts += [f"{rank}B{mb}" for mb in range(microbatches - ahead, microbatches)]
        actions.append(tuple(texts))
    return ScheduleTable(
        name="1F1B",
        csv=None,
        microbatches=microbatches,
        microbatch_size=1,
        stages_of_rank=tuple((rank,) for rank in range(ranks)),
        actions=tuple(actions),
    )
