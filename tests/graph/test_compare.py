"""Builds and schedule files side by side, also where programs are missing."""

import msgspec
import pytest

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.compare import Candidate, compared, of_build, of_file
from pp_precompile.graph.demand import demand
from pp_precompile.graph.times import UNIT_TIMES, Times
from tests.graph.builds import INTERLEAVED, PP4, load
from tests.manifests import make_sound
from tests.schedules import read, table

SPLIT = load("llama3_pp2_fsdp2_dualpipev")


def put(name: str, base: Manifest, *others: Manifest) -> Candidate:
    return of_file(name, read(name), base, others)


def test_a_build_is_compared_as_it_is() -> None:
    line = compared(of_build("a build", PP4), UNIT_TIMES)
    assert (line.name, line.schedule, line.ranks, line.step) == ("a build", "1F1B", 4, 33)
    assert (line.activation_bytes, line.programs) == (3 * PP4.stages[1].saved_bytes, 9)
    assert (line.missing, line.gathered_bytes) == ((), 0)
    assert line.parameter_bytes == sum(p.tensor.nbytes for p in PP4.stages[1].parameters)


def test_a_file_with_the_build_s_own_schedule_gives_the_same_line() -> None:
    own = compared(of_build("x", PP4), UNIT_TIMES)
    file = compared(put("1f1b_4x8.csv", PP4), UNIT_TIMES)
    assert msgspec.structs.replace(file, name="x", schedule=own.schedule) == own
    assert file.schedule == "1f1b_4x8"


def test_stages_can_be_placed_on_another_number_of_ranks() -> None:
    line = compared(put("interleaved1f1b_2x8.csv", PP4), UNIT_TIMES)
    looped = compared(of_build("x", INTERLEAVED), UNIT_TIMES)
    assert (line.ranks, line.stages) == (2, 4)
    assert (line.bubble, line.activation_bytes) == (looped.bubble, looped.activation_bytes)
    assert line.load_bytes == looped.load_bytes


def test_programs_that_no_build_holds_are_named_and_their_memory_is_not_known() -> None:
    line = compared(put("zb_h1_4x8.csv", PP4), UNIT_TIMES)
    assert line.missing == tuple(
        f"stage {stage} backward_{part}" for stage in (1, 2, 3) for part in ("input", "weight")
    )
    assert (line.activation_bytes, line.peak_bytes, line.load_bytes) == (None, None, None)
    assert (line.step, line.programs) == (27, 12)


def test_programs_that_another_build_of_the_same_stages_holds_are_found() -> None:
    schedule = table("1f1b_4x8.csv")
    whole, split = make_sound(schedule), make_sound(table("zb_h1_4x8.csv"))
    alone = put("zb_h1_4x8.csv", whole)
    together = put("zb_h1_4x8.csv", whole, INTERLEAVED, split)
    assert len(alone.missing) == 6
    assert together.missing == ()
    line, own = (compared(one, UNIT_TIMES) for one in (together, of_build("x", split)))
    assert (line.activation_bytes, line.load_bytes) == (own.activation_bytes, own.load_bytes)


def test_programs_that_the_schedule_does_not_run_are_not_loaded() -> None:
    whole = put("interleaved1f1b_2x8.csv", SPLIT)
    roles = {role for stage in whole.manifest.stages for role in stage.programs}
    assert roles == {"unshard", "forward", "loss", "backward", "reduce_grad"}
    line = compared(whole, UNIT_TIMES)
    assert line.load_bytes is not None
    assert line.load_bytes < (compared(of_build("x", SPLIT), UNIT_TIMES).load_bytes or 0)


def test_what_a_schedule_runs() -> None:
    assert demand(PP4.schedule, PP4.stages, loss=True) == [
        *((stage, role) for stage in range(3) for role in ("forward", "backward")),
        (3, "forward"),
        (3, "loss"),
        (3, "backward"),
    ]
    parts = demand(table("zb_h1_4x8.csv"), PP4.stages, loss=False)
    assert "loss" not in {role for _, role in parts}
    assert [role for stage, role in parts if stage == 0] == ["forward", "backward"]
    assert [r for s, r in parts if s == 1] == ["forward", "backward_input", "backward_weight"]


def test_a_file_for_another_number_of_stages_is_refused() -> None:
    with pytest.raises(PrecompileError) as caught:
        put("1f1b_2x8.csv", PP4)
    assert (caught.value.code, caught.value.found) == ("PPC003", "2 stages")


def test_a_time_that_a_schedule_needs_is_asked_for() -> None:
    times = Times(all={"F": 1.0, "B": 2.0})
    assert compared(of_build("x", PP4), times).step == 33
    with pytest.raises(PrecompileError, match="PPC007: there is no time for I of stage"):
        compared(put("zb_h1_4x8.csv", PP4), times)
