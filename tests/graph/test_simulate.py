"""When actions begin and end, by hand and for any schedule; a schedule that cannot run ends."""

from collections.abc import Sequence
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.bubble import bubble_fraction, bubble_of
from pp_precompile.graph.runnable import simulated
from pp_precompile.graph.simulate import simulate
from pp_precompile.graph.times import Times
from tests.manifests import make_schedule
from tests.schedules import FILES, one_f_one_b, table

SIZES = st.integers(1, 6)


def scheduled(*ranks: str, stages: Sequence[Sequence[int]] | None = None) -> ScheduleTable:
    """A schedule with these actions on each rank, of one stage each unless told otherwise."""
    held = stages or [(rank,) for rank in range(len(ranks))]
    actions = tuple(tuple(texts.split()) for texts in ranks)
    microbatches = max(text.count("F") - text.count("O") for text in ranks)
    return msgspec.structs.replace(
        make_schedule(1, 1, microbatches),
        stages_of_rank=tuple(map(tuple, held)),
        actions=actions,
    )


def test_begins_and_ends_by_hand() -> None:
    run = simulate(scheduled("0F0 0B0", "1F0 1B0"))
    assert (run.starts, run.ends) == (([0, 4], [1, 2]), ([1, 6], [2, 4]))
    assert (run.step, run.busy(0), run.busy(1)) == (6, 3, 3)
    assert bubble_of(run) == Fraction(1, 2)


def test_a_backward_in_parts_lets_the_stage_before_go_on_after_the_first() -> None:
    run = simulate(scheduled("0F0 0I0 0W0", "1F0 1I0 1W0"))
    assert (run.starts[1], run.starts[0]) == ([1, 2, 3], [0, 3, 4])


def test_overlapped_actions_run_one_after_the_other_and_send_after_both() -> None:
    first = "0F0 0F1 0B0 0B1"
    run = simulate(scheduled(first, "1F0 (1B0;1F1)OVERLAP_F_B 1B1"))
    # 1B0 ends at 4, but what it computed leaves only after 1F1, which ends at 5.
    assert (run.starts[1], run.ends[1]) == ([1, 2, 4, 5], [2, 4, 5, 7])
    assert run.starts[0] == [0, 1, 5, 7]
    apart = simulate(scheduled(first, "1F0 1B0 1F1 1B1"))
    assert apart.starts[0] == [0, 1, 4, 7]


def test_communication_takes_its_time_between_ranks_only() -> None:
    times = Times(all={"F": 1, "B": 2}, communication=0.5)
    assert simulate(scheduled("0F0 0B0", "1F0 1B0"), times).starts == ([0, 5.0], [1.5, 2.5])
    on_one = scheduled("0F0 1F0 1B0 0B0", stages=[(0, 1)])
    assert simulate(on_one, times).starts == ([0, 1, 2, 4],)


def test_each_stage_may_have_its_own_times() -> None:
    times = Times(all={"F": 1, "B": 2}, stages={1: {"F": 5}})
    assert simulate(scheduled("0F0 0B0", "1F0 1B0"), times).ends == ([1, 10], [6, 8])


@pytest.mark.parametrize("ranks", [1, 2, 4, 16])
@pytest.mark.parametrize("microbatches", [4, 16, 64])
def test_gpipe_and_1f1b_wait_by_the_known_formula(ranks: int, microbatches: int) -> None:
    known = Fraction(ranks - 1, microbatches + ranks - 1)
    assert bubble_fraction(make_schedule(ranks, ranks, microbatches)) == known
    assert bubble_fraction(one_f_one_b(ranks, microbatches)) == known


def test_zero_bubble_schedules_by_hand() -> None:
    # ZB-H1: of 3 (p - 1) units of 1F1B, a third is left. ZBV: p - 1 units of a chunk's half size.
    assert bubble_fraction(table("zb_h1_4x8.csv")) == Fraction(3, 3 * 8 + 3)
    assert bubble_fraction(table("zbv_zero_bubble_4x8.csv")) == Fraction(3, 2 * 3 * 8 + 3)


@given(
    name=st.sampled_from(FILES),
    seconds=st.fixed_dictionaries(
        {kind: st.floats(1e-6, 1e6) for kind in "FBIW"},
    ),
    communication=st.floats(0, 1e6),
)
def test_every_schedule_waits_a_part_of_its_step(
    name: str, seconds: dict[str, float], communication: float
) -> None:
    schedule = table(name)
    run = simulate(schedule, Times(all=seconds, communication=communication))
    assert 0 <= bubble_of(run) < 1
    assert run.step >= max(run.busy(rank) for rank in range(len(run.ends))) * (1 - 1e-9)
    for starts, ends in zip(run.starts, run.ends, strict=True):
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


@given(ranks=SIZES, microbatches=SIZES, seed=st.randoms(use_true_random=False))
def test_names_of_microbatches_change_nothing(ranks: int, microbatches: int, seed: object) -> None:
    schedule = one_f_one_b(ranks, microbatches)
    names = list(range(microbatches))
    seed.shuffle(names)  # type: ignore[attr-defined]
    renamed = msgspec.structs.replace(
        schedule,
        actions=tuple(
            tuple(
                f"{rank}{text[len(str(rank))]}{names[int(text[len(str(rank)) + 1 :])]}"
                for text in texts
            )
            for rank, texts in enumerate(schedule.actions)
        ),
    )
    one, other = simulate(schedule), simulate(renamed)
    assert (one.starts, one.ends) == (other.starts, other.ends)


def test_a_schedule_that_waits_for_itself_is_refused_with_the_ring() -> None:
    ring = msgspec.structs.replace(
        make_schedule(2, 2, 2),
        actions=(("0F0", "0B0", "0F1", "0B1"), ("1F0", "1F1", "1B0", "1B1")),
    )
    with pytest.raises(ValueError, match="waits for itself"):
        simulate(ring)
    with pytest.raises(PrecompileError, match="of a test: the schedule waits for itself") as caught:
        simulated(ring, what="the schedule of a test")
    assert caught.value.code == "PPC524"
    assert "0B0 (rank 0, position 1)" in str(caught.value.found)


def test_written_communication_that_waits_for_itself_is_refused() -> None:
    """What is carried would arrive; the receives stand in an order that no rank can get past."""
    written = msgspec.structs.replace(
        make_schedule(2, 2, 1),
        actions=(
            ("0F0", "0RECV_B0", "0SEND_F0", "0B0"),
            ("1RECV_F0", "1F0", "1B0", "1SEND_B0"),
        ),
    )
    assert simulate(written).step == 6
    with pytest.raises(PrecompileError) as caught:
        simulated(written, what="the schedule of a test")
    assert caught.value.code == "PPC524"


@pytest.mark.parametrize(
    ("actions", "code"),
    [
        ((("0F0", "0B0"), ("1F0",)), "PPC521"),
        ((("0F0", "0B0"), ("1B0", "1F0")), "PPC522"),
        ((("0F0", "0B0", "0F7"), ("1F0", "1B0")), "PPC525"),
        (((), ()), "PPC521"),
    ],
)
def test_an_incomplete_schedule_is_refused_before(actions: object, code: str) -> None:
    broken = msgspec.structs.replace(make_schedule(2, 2, 1), actions=actions)
    with pytest.raises(PrecompileError) as caught:
        simulated(broken, what="the schedule of a test")
    assert caught.value.code == code


def test_times_that_are_all_zero_are_refused() -> None:
    with pytest.raises(PrecompileError, match="no time passes") as caught:
        simulated(make_schedule(2, 2, 1), Times(all={"F": 0, "B": 0}), what="the schedule")
    assert caught.value.code == "PPC007"


def test_work_grows_with_the_actions() -> None:
    """A hundred thousand of them: a search over pairs, or a graph of nodes, would take minutes."""
    schedule = one_f_one_b(8, 6_250)
    assert sum(map(len, schedule.actions)) == 100_000
    run = simulate(schedule)
    assert run.step == 3 * (6_250 + 7)
