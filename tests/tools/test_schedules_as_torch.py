"""The checks refuse exactly the orders that torch cannot lower: torch's own code is the oracle."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.check import check_build
from tests.manifests import make_sound
from tests.schedules import table
from tools.make_schedules import with_communication

FILES = ("1f1b_4x8.csv", "zb_h1_4x8.csv", "zbv_zero_bubble_2x8.csv", "dualpipev_2x8.csv")


def torch_lowers(schedule: ScheduleTable) -> bool:
    rows = [list(texts) for texts in schedule.actions]
    try:
        with_communication(rows, len(schedule.stages_of_rank[0]), schedule.microbatches)
    except AssertionError:
        return False
    return True


@settings(max_examples=200)
@given(
    name=st.sampled_from(FILES),
    moves=st.lists(st.tuples(*[st.integers(0, 40)] * 3), max_size=3),
)
def test_an_order_is_refused_exactly_if_torch_cannot_lower_it(
    name: str, moves: list[tuple[int, int, int]]
) -> None:
    schedule = table(name)
    rows = [list(texts) for texts in schedule.actions]
    for rank, source, target in moves:
        texts = rows[rank % len(rows)]
        texts.insert(target % len(texts), texts.pop(source % len(texts)))
    schedule = msgspec.structs.replace(schedule, actions=tuple(map(tuple, rows)))
    assert (check_build(make_sound(schedule)) == []) is torch_lowers(schedule)


@pytest.mark.parametrize("name", FILES)
def test_torch_lowers_the_files_as_they_are(name: str) -> None:
    assert torch_lowers(table(name))
