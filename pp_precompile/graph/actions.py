"""Each stage does each microbatch exactly once, on its own rank, and in an order that can work."""

from collections.abc import Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.timetable import COMPUTE, Place, Timetable, describe

_MOST = 20
"""Most places that are reported one by one; a schedule for other numbers breaks in thousands."""

_HINT = "correct the schedule, or build again with one that torch makes"


def check_known(timetable: Timetable) -> Iterator[Finding]:
    """Yield PPC525 for actions of a stage or microbatch that is not there, or not on that rank."""
    microbatches = timetable.schedule.microbatches
    strange: dict[int, list[str]] = {}
    for (stage, _, microbatch), places in timetable.places.items():
        outside = microbatch is not None and microbatch >= microbatches
        for place in places:
            if outside or timetable.owner.get(stage) != place[0]:
                strange.setdefault(place[0], []).append(describe(timetable, place))
    for rank, texts in sorted(strange.items()):
        held = timetable.schedule.stages_of_rank[rank]
        yield Finding(
            code="PPC525",
            message=f"rank {rank} has actions that cannot be its own",
            where=Where(rank=rank, field="schedule.actions"),
            expected=f"stages {listed(held)}, microbatches 0 to {microbatches - 1}",
            found=listed(texts),
            hint=_HINT,
        )


def check_once(timetable: Timetable) -> Iterator[Finding]:
    """Yield PPC521 unless each stage and microbatch has one F and one B (or one I and one W)."""
    looked_at = range(timetable.microbatches)
    faults = timetable.stages * (timetable.schedule.microbatches - len(looked_at))
    reported = 0
    for stage in range(timetable.stages):
        for microbatch in looked_at:
            counts = [len(timetable.places.get((stage, kind, microbatch), ())) for kind in COMPUTE]
            if counts in ([1, 1, 0, 0], [1, 0, 1, 1]):
                continue
            faults += 1
            if reported < _MOST:
                reported += 1
                yield _not_once(timetable, stage, microbatch, counts)
    if faults > reported:
        yield Finding(
            code="PPC521",
            message=f"{faults - reported} more stages and microbatches are not done exactly once",
            where=Where(field="schedule.actions"),
            expected="one F and one B, or one F, one I and one W, each",
            found=f"{faults} faults in all",
            hint=_HINT,
        )


def _not_once(timetable: Timetable, stage: int, microbatch: int, counts: list[int]) -> Finding:
    done = zip(COMPUTE, counts, strict=True)
    return Finding(
        code="PPC521",
        message=f"stage {stage} does not do microbatch {microbatch} exactly once",
        where=Where(stage=stage, rank=timetable.owner[stage], field="schedule.actions"),
        expected="one F and one B, or one F, one I and one W",
        found=", ".join(f"{count} {kind}" for kind, count in done if count) or "no action",
        hint=_HINT,
    )


_NEEDS = (
    ("B", "F"),
    ("I", "F"),
    ("W", "I"),
    ("F", "RECV_F"),
    ("SEND_F", "F"),
    ("B", "RECV_B"),
    ("I", "RECV_B"),
    ("SEND_B", "B"),
    ("SEND_B", "I"),
)
"""Pairs (later, earlier) of kinds for one stage and microbatch, all on the stage's own rank."""


def check_order(timetable: Timetable) -> Iterator[Finding]:
    """Yield PPC522 where an action of one stage and microbatch comes before one that it needs."""
    faults = 0
    for later, earlier in _NEEDS if timetable.written else _NEEDS[:3]:
        for (stage, kind, microbatch), places in timetable.places.items():
            if kind != later:
                continue
            needed = timetable.places.get((stage, earlier, microbatch))
            if needed and needed[0] > places[0] and needed[0][0] == places[0][0]:
                faults += 1
                if faults <= _MOST:
                    yield _too_early(timetable, places[0], needed[0])


def check_reduction(timetable: Timetable) -> Iterator[Finding]:
    """Yield PPC521 or PPC522 unless a stage's gradients are reduced once, after its last one."""
    last: dict[int, Place] = {}
    for (stage, kind, _), places in timetable.places.items():
        if kind in ("B", "W"):
            last[stage] = max(last.get(stage, places[-1]), places[-1])
    for (stage, kind, _), places in timetable.places.items():
        if kind != "REDUCE_GRAD" or stage not in timetable.owner:
            continue
        if len(places) > 1:
            yield Finding(
                code="PPC521",
                message=f"stage {stage} reduces its gradients {len(places)} times",
                where=Where(stage=stage, rank=places[0][0], field="schedule.actions"),
                expected="at most once in a step",
                found=listed(describe(timetable, place) for place in places),
                hint=_HINT,
            )
        elif stage in last and places[0][0] == last[stage][0] and places[0] < last[stage]:
            yield _too_early(timetable, places[0], last[stage])


def _too_early(timetable: Timetable, place: Place, needed: Place) -> Finding:
    action = timetable.ranks[place[0]][place[1]]
    return Finding(
        code="PPC522",
        message=f"{action} comes before {timetable.ranks[needed[0]][needed[1]]}, which it needs",
        where=Where(stage=action.stage, rank=place[0], field="schedule.actions"),
        expected=f"{describe(timetable, needed)} before {action}",
        found=describe(timetable, place),
        hint=_HINT,
    )
