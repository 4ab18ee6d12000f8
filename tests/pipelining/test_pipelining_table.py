"""Schedules from files, for pipelines without torchtitan: no ranks, nothing compiled."""

import pytest

from pp_precompile.pipelining.table import schedule_table
from tests.schedules import FOLDER, read


@pytest.mark.parametrize(
    ("name", "ranks", "stages", "as_in"),
    [
        ("1f1b_4x8.csv", 4, 4, "Interleaved1F1B"),
        ("interleaved1f1b_2x8.csv", 2, 4, "Interleaved1F1B"),
        ("zbv_zero_bubble_2x8.csv", 2, 4, "ZBVZeroBubble"),
        ("dualpipev_4x8_comms.csv", 4, 8, "ZBVZeroBubble"),
    ],
)
def test_a_file_is_taken_as_it_is_and_named_by_how_its_stages_lie(
    name: str, ranks: int, stages: int, as_in: str
) -> None:
    path, file = FOLDER / name, read(name)
    found = schedule_table(path, ranks=ranks, stages=stages, microbatches=8, size=4, group=None)
    assert (found.name, found.csv, found.microbatch_size) == (as_in, file.digest, 4)
    assert (found.actions, found.stages_of_rank) == (file.actions, file.stages_of_rank)
