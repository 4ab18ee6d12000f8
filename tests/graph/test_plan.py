"""What a dry run says of a build: sizes, sharing, and what a store has already."""

import msgspec
import pytest

from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.in_flight import in_flight
from pp_precompile.graph.plan import plan_of
from tests.graph.builds import INTERLEAVED, PP4
from tests.schedules import table


def test_a_plan_describes_the_build_and_its_stages() -> None:
    plan = plan_of(PP4)
    assert (plan.build, plan.device, plan.ranks) == (PP4.build_id, "cpu", 4)
    assert (plan.schedule, plan.microbatches, plan.microbatch_size) == ("1F1B", 8, 1)
    first, second, _, last = plan.stages
    assert [stage.pp_rank for stage in plan.stages] == [0, 1, 2, 3]
    assert str(second.arguments[0].tensor) == str(first.outputs[0]) == "float32[1, 256, 256]"
    assert first.saved_bytes == PP4.stages[0].saved_bytes
    # Both have a layer and 2048 vectors of 256, embedding or head; the last one also the norm.
    assert last.parameter_bytes - first.parameter_bytes == 4 * 256
    assert first.parameter_bytes == sum(p.tensor.nbytes for p in PP4.stages[0].parameters)
    loss = next(item for item in last.programs if item.role == "loss")
    assert (loss.inputs, loss.outputs) == (3, 2)


def test_programs_of_one_key_are_compiled_once() -> None:
    plan = plan_of(PP4)
    assert [item.source for item in plan.stages[1].programs] == ["compile", "compile"]
    assert [item.source for item in plan.stages[2].programs] == ["build", "build"]
    assert (len(plan.programs), len(plan.keys()), len(plan.keys("compile"))) == (9, 7, 7)


def test_what_a_store_has_is_not_compiled() -> None:
    plan = plan_of(PP4)
    shared = plan.stages[1].programs[0].key
    against = plan.against(lambda key: key == shared)
    assert against.stages[1].programs[0].source == "store"
    assert against.stages[2].programs[0].source == "store"
    assert (against.keys("store"), len(against.keys("compile"))) == ({shared}, 6)
    assert plan.keys("store") == set()
    assert plan.against(lambda key: False) == plan


def test_the_pipeline_rank_is_that_of_the_schedule() -> None:
    assert [stage.pp_rank for stage in plan_of(INTERLEAVED).stages] == [0, 1, 0, 1]


def _schedule(*actions: str) -> ScheduleTable:
    like = msgspec.structs.replace(PP4.schedule, stages_of_rank=((0,),), microbatches=3)
    return msgspec.structs.replace(like, actions=(actions,))


@pytest.mark.parametrize(
    ("actions", "most"),
    [
        ("0F0 0F1 0F2 0B0 0B1 0B2", 3),
        ("0F0 0B0 0F1 0B1 0F2 0B2", 1),
        # The saved values of a backward in two parts are there until the second.
        ("0F0 0I0 0F1 0I1 0F2 0I2 0W0 0W1 0W2", 3),
        # Of two overlapped actions torch runs one after the other.
        ("0F0 (0F1;0B0)OVERLAP_F_B (0F2;0B1)OVERLAP_F_B 0B2", 2),
    ],
)
def test_microbatches_in_flight(actions: str, most: int) -> None:
    assert in_flight(_schedule(*actions.split())) == {0: most}


def test_1f1b_keeps_fewer_microbatches_on_later_stages() -> None:
    assert [stage.in_flight for stage in plan_of(PP4).stages] == [4, 3, 2, 1]


def test_each_stage_of_a_rank_is_counted_for_itself() -> None:
    schedule = table("dualpipev_2x8.csv")
    counts = in_flight(schedule)
    assert set(counts) == set(range(schedule.stages))
    assert all(1 <= count <= schedule.microbatches for count in counts.values())
    # In a V the first and the last stage share a rank; the last one's turn around at once.
    assert counts[0] > counts[3]
