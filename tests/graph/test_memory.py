"""What ranks hold, by hand and for any schedule: peaks over the order, not sums of peaks."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.manifest import Manifest, Variant
from pp_precompile.contract.program import Value
from pp_precompile.contract.schedule import Action
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.graph.held import Held, held
from pp_precompile.graph.memory import Level, levels, peaks
from pp_precompile.graph.runnable import simulated
from pp_precompile.graph.step_plan import StepPlan, plan_step
from pp_precompile.graph.times import UNIT_TIMES
from tests.graph.builds import PP4, load
from tests.manifests import ACTIVATION, GATHERED, make_schedule, make_sound, make_stage
from tests.schedules import FILES, table

SPLIT = load("llama3_pp2_fsdp2_dualpipev")

NOTHING = Held(
    saved=0, loss=0, kept=None, gathered=0, unreduced=0, unreduced_by_loss=0, at_least=False
)


def holding(**sizes: int) -> Held:
    return Held(**{**vars(NOTHING), **sizes})  # type: ignore[arg-type]


def walk(texts: str, held: dict[int, Held], microbatches: int) -> list[Level]:
    return list(levels([Action.parse(text) for text in texts.split()], held, microbatches))


def plan(manifest: Manifest) -> StepPlan:
    return plan_step(manifest, simulated(manifest.schedule, what="a build"), UNIT_TIMES)


def test_saved_values_are_there_from_forward_to_backward() -> None:
    found = walk("0F0 0F1 0B0 0F2 0B1 0B2", {0: holding(saved=10, loss=1)}, 3)
    assert [level.activations for level in found] == [11, 22, 11, 22, 11, 0]
    assert [level.position for level in found] == list(range(6))


def test_what_w_needs_is_kept_until_w() -> None:
    found = walk("0F0 0I0 0F1 0I1 0W0 0W1", {0: holding(saved=10, kept=14)}, 2)
    assert [level.activations for level in found] == [10, 14, 24, 28, 14, 0]


def test_what_is_gathered_is_there_from_the_first_forward_to_the_last_backward() -> None:
    own = holding(saved=10, gathered=100, unreduced=200)
    found = walk("0F0 0F1 0B0 0B1", {0: own}, 2)
    assert [level.gathered for level in found] == [100, 100, 300, 300, 0]
    assert [level.position for level in found] == [0, 1, 2, 3, 3]
    assert peaks([Action.parse(t) for t in ("0F0", "0B0")], {0: own}, 1).both == Level(1, 0, 300)


def test_gradients_of_the_loss_wait_for_the_first_part_of_a_backward() -> None:
    own = holding(gathered=1, unreduced=30, unreduced_by_loss=20, kept=0)
    found = walk("0F0 0I0 0W0", {0: own}, 1)
    assert [level.gathered for level in found] == [1, 21, 31, 0]


def test_a_rank_s_peak_is_that_of_its_stages_together() -> None:
    both = {0: holding(saved=10), 1: holding(saved=7)}
    actions = [Action.parse(t) for t in "0F0 0F1 0B0 0B1 1F0 1F1 1B0 1B1".split()]
    assert peaks(actions, both, 2).activations == Level(1, 20, 0)
    apart = [Action.parse(t) for t in "0F0 1F0 0F1 0B0 0B1 1F1 1B0 1B1".split()]
    assert peaks(apart, both, 2).activations == Level(2, 27, 0)


def test_a_rank_without_actions_holds_nothing() -> None:
    assert peaks([], {}, 3) == (Level(0, 0, 0),) * 3


def test_parts_that_the_build_lacks_are_named() -> None:
    with pytest.raises(PrecompileError, match="stage 0 has no programs") as caught:
        walk("0F0 0I0 0W0", {0: holding(saved=1)}, 1)
    assert caught.value.code == "PPC105"


def test_what_a_real_stage_holds() -> None:
    first, second, _, last = SPLIT.stages
    activation = 256 * 256 * 4
    # In the middle W takes a part of what was saved, the gradient of the output, and deferred ones.
    w = second.programs["backward_weight"]
    deferred = sum(v.tensor.nbytes for v in w.inputs if v.kind == "deferred" and v.tensor)
    assert held(second).saved == second.saved_bytes
    assert held(second).kept == 3_674_112 + activation + deferred
    # The first stage does its whole backward at W: all saved values wait, with the gradient.
    assert held(first).kept == first.saved_bytes + activation
    assert (held(first).loss, held(last).loss) == (0, 256 * 2048 * 4)
    gathered = sum(v.tensor.nbytes for v in first.programs["unshard"].outputs if v.tensor)
    assert (held(first).gathered, held(first).unreduced) == (gathered, gathered)
    assert held(PP4.stages[1]).kept is None


def test_a_value_that_is_an_input_costs_nothing() -> None:
    stage = make_stage(1, kinds="FBIW")
    assert (held(stage).saved, held(stage).kept) == (ACTIVATION.nbytes, 2 * ACTIVATION.nbytes)
    passed = with_saved(stage, alias="argument:0")
    assert (held(passed).saved, held(passed).kept) == (0, ACTIVATION.nbytes)


def test_a_value_in_another_shape_costs_nothing_and_keeps_the_one_that_it_is() -> None:
    stage = make_stage(1, kinds="FBIW")
    forward = stage.programs["forward"]
    again = Value(kind="saved", name="1", tensor=ACTIVATION, alias="saved:0")
    programs = dict(stage.programs)
    programs["forward"] = msgspec.structs.replace(forward, outputs=(*forward.outputs, again))
    both = msgspec.structs.replace(stage, programs=programs)
    assert (held(both).saved, held(both).kept) == (held(stage).saved, held(stage).kept)
    # W takes the second one only: the memory is the first one's.
    weight = programs["backward_weight"]
    taken = tuple(
        msgspec.structs.replace(value, name="1") if value.kind == "saved" else value
        for value in weight.inputs
    )
    programs["backward_weight"] = msgspec.structs.replace(weight, inputs=taken)
    other = msgspec.structs.replace(stage, programs=programs)
    assert held(other).kept == held(stage).kept


def test_a_size_that_depends_on_data_makes_it_at_least() -> None:
    dynamic = msgspec.structs.replace(ACTIVATION, shape=(1, 0, 4), dynamic=(1,))
    stage = with_saved(make_stage(1, kinds="FBIW"), tensor=dynamic)
    assert held(stage).at_least
    assert not held(make_stage(1, kinds="FBIW")).at_least
    assert held(with_saved(stage, tensor=None)).saved == 0


def with_saved(stage: StageRecord, **changed: str | TensorSpec | None) -> StageRecord:
    """Return ``stage`` with another saved value."""

    def other(value: Value) -> Value:
        return msgspec.structs.replace(value, **changed) if value.kind == "saved" else value

    forward = stage.programs["forward"]
    forward = msgspec.structs.replace(forward, outputs=tuple(map(other, forward.outputs)))
    return msgspec.structs.replace(stage, programs={**stage.programs, "forward": forward})


def test_the_plan_of_a_real_build() -> None:
    found = plan(PP4)
    saved = [stage.saved_bytes for stage in PP4.stages]
    assert [rank.activation_bytes for rank in found.ranks] == [
        4 * saved[0],
        3 * saved[1],
        2 * saved[2],
        saved[3] + 256 * 2048 * 4,
    ]
    assert [rank.peak_action for rank in found.ranks] == ["0F3", "1F2", "2F1", "3F0"]
    assert [stage.in_flight for stage in found.stages] == [4, 3, 2, 1]
    assert (found.step, found.unit, found.worst.pp_rank) == (33, "unit", 1)
    assert found.bubble == pytest.approx(3 / 11)
    for rank in found.ranks:
        programs = PP4.stages[rank.pp_rank].programs.values()
        assert rank.load_bytes == sum(program.blob.size for program in programs)
        assert (rank.blobs, rank.busy, rank.waiting) == (len(programs), 24, 9)


def test_blobs_that_stages_of_a_rank_share_are_loaded_once() -> None:
    rank = plan(SPLIT).ranks[1]
    one, other = (SPLIT.stages[index].programs.values() for index in (1, 2))
    assert rank.stages == (1, 2)
    assert {p.blob for p in one} == {p.blob for p in other}
    assert (rank.blobs, rank.load_bytes) == (len(one), sum(p.blob.size for p in one))


def test_every_variant_is_planned() -> None:
    manifest = make_sound(make_schedule(2, 2, 3), dims={"dp": 2})
    larger = msgspec.structs.replace(ACTIVATION, shape=(1, 8, 8), stride=(64, 8, 1))
    stages = tuple(with_saved(stage, tensor=larger) for stage in manifest.stages)
    varied = msgspec.structs.replace(manifest, variants=(Variant(columns=(1,), stages=stages),))
    found = plan(varied)
    assert [(rank.pp_rank, rank.columns) for rank in found.ranks] == [
        (0, ()),
        (1, ()),
        (0, (1,)),
        (1, (1,)),
    ]
    assert found.ranks[2].activation_bytes == 2 * found.ranks[0].activation_bytes
    assert plan(varied.view(1)).ranks[0].activation_bytes == found.ranks[2].activation_bytes


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("gather", [False, True])
def test_peaks_of_every_file(name: str, gather: bool) -> None:
    """At least those of each stage alone, at most their sum; nothing is left at the end."""
    manifest = make_sound(table(name), gather=gather)
    found = plan(manifest)
    run = simulated(manifest.schedule, what=name)
    for rank, actions in zip(found.ranks, run.table.ranks, strict=True):
        alone = [
            peaks(
                [action for action in actions if action.stage == stage],
                {stage: held(manifest.stages[stage])},
                found.microbatches,
            ).activations.activations
            for stage in rank.stages
        ]
        assert max(alone) <= rank.activation_bytes <= sum(alone)
        # LoopedBFS ends the backwards of a later stage before it begins those of an earlier one.
        gathered = len(rank.stages) * GATHERED.nbytes if gather else 0
        assert gathered <= rank.gathered_bytes <= 2 * gathered
        assert (rank.gathered_bytes == 2 * gathered) is not (gather and "loopedbfs" in name)
        own = {stage: held(manifest.stages[stage]) for stage in rank.stages}
        last = list(levels(actions, own, found.microbatches))[-1]
        assert (last.activations, last.gathered) == (0, 0)


@given(
    sizes=st.dictionaries(
        st.integers(0, 7),
        st.tuples(*[st.integers(0, 2**40)] * 4),
        min_size=8,
        max_size=8,
    ),
    name=st.sampled_from([name for name in FILES if "4x8" in name and "_comms" not in name]),
)
def test_peaks_grow_with_what_stages_hold(
    sizes: dict[int, tuple[int, int, int, int]], name: str
) -> None:
    own = {
        stage: holding(saved=saved, kept=kept, gathered=gathered, unreduced=unreduced)
        for stage, (saved, kept, gathered, unreduced) in sizes.items()
    }
    run = simulated(table(name), what=name)
    for actions in run.table.ranks:
        found = peaks(actions, own, 8)
        assert found.both.both <= found.activations.activations + found.gathered.gathered
        assert found.both.both >= max(found.activations.activations, found.gathered.gathered)
        for stage in {action.stage for action in actions}:
            more = own | {stage: holding(**{**vars(own[stage]), "saved": own[stage].saved + 1})}
            grown = peaks(actions, more, 8).activations.activations
            assert found.activations.activations <= grown


def test_names_of_microbatches_change_no_level() -> None:
    manifest = make_sound(table("zbv_zero_bubble_2x8.csv"))
    own = {stage.index: held(stage) for stage in manifest.stages}
    ranks = simulated(manifest.schedule, what="a file").table.ranks
    assert [len(actions) for actions in ranks] == [2 * 8 * 3] * 2
    for actions in ranks:
        renamed = [Action(a.stage, a.kind, 7 - (a.microbatch or 0)) for a in actions]
        assert list(levels(renamed, own, 8)) == list(levels(actions, own, 8))
