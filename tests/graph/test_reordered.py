"""Reordered schedules are refused exactly if ranks that wait for what they need would not end."""

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.schedule import Action, ScheduleTable, parse_actions
from pp_precompile.graph.check import check_build
from pp_precompile.graph.finding import errors
from tests.graph.builds import INTERLEAVED, PP4, rekeyed
from tests.manifests import make_sound
from tests.schedules import table

FILES = ("zb_h1_4x8.csv", "zbv_zero_bubble_2x8.csv", "dualpipev_2x8.csv", "dualpipev_4x8.csv")

BUILDS = (PP4, INTERLEAVED, *(make_sound(table(name)) for name in FILES))

Done = set[tuple[int, str, int | None]]


def runs(schedule: ScheduleTable) -> bool:
    """Run a schedule cell by cell, as ranks would that wait for what they need.

    What a cell computes is there for others after all of it, and a cell starts once all is there
    that it needs from others.
    """
    queues = [[parse_actions(text) for text in texts] for texts in schedule.actions]
    last, done, progress = schedule.stages - 1, set[tuple[int, str, int | None]](), True
    while progress:
        progress = False
        for queue in queues:
            while queue and _ready(queue[0], done, last):
                done |= {(a.stage, a.kind, a.microbatch) for a in queue.pop(0)}
                progress = True
    return not any(queues)


def _ready(cell: Sequence[Action], done: Done, last: int) -> bool:
    inside: Done = set()
    for action in cell:
        if not all(done & set(any_of) or inside & set(any_of) for any_of in _needs(action, last)):
            return False
        inside.add((action.stage, action.kind, action.microbatch))
    return True


def _needs(action: Action, last: int) -> list[list[tuple[int, str, int | None]]]:
    """For each thing that an action needs, the steps of which one must be done."""
    stage, kind, mb = action.stage, action.kind, action.microbatch
    if kind == "F" and stage > 0:
        return [[(stage - 1, "F", mb)]]
    if kind in ("B", "I"):
        after = [[(stage + 1, "B", mb), (stage + 1, "I", mb)]] if stage < last else []
        return [[(stage, "F", mb)], *after]
    return [[(stage, "I", mb)]] if kind == "W" else []


@settings(max_examples=400)
@given(
    manifest=st.sampled_from(BUILDS),
    moves=st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=4),
)
def test_a_reordered_schedule_is_refused_exactly_if_it_cannot_run(
    manifest: Manifest, moves: list[tuple[int, int, int]]
) -> None:
    rows = [list(texts) for texts in manifest.schedule.actions]
    for rank, source, target in moves:
        texts = rows[rank % len(rows)]
        kept = [text for text in texts if not text.endswith("REDUCE_GRAD")]
        kept.insert(target % len(kept), kept.pop(source % len(kept)))
        texts[: len(kept)] = kept
    schedule = msgspec.structs.replace(manifest.schedule, actions=tuple(map(tuple, rows)))
    changed = rekeyed(msgspec.structs.replace(manifest, schedule=schedule))
    assert refused(changed) is not runs(schedule)


def refused(manifest: Manifest) -> bool:
    findings = errors(check_build(manifest))
    assert {finding.code for finding in findings} <= {"PPC522", "PPC524"}
    return bool(findings)


def test_the_schedules_run_as_they_were() -> None:
    assert all(runs(manifest.schedule) for manifest in BUILDS)
