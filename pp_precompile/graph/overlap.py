"""A forward and a backward that run as one program: it is made of exactly these two."""

import functools
from collections.abc import Iterator, Mapping

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import Value
from pp_precompile.contract.schedule import ScheduleTable, parse_actions
from pp_precompile.graph.finding import Finding, listed


@functools.lru_cache(maxsize=4)
def overlapped(schedule: ScheduleTable) -> Mapping[int, list[int]]:
    """Return the stages whose forward overlaps a backward, with the stages of the backwards."""
    pairs = {
        (f.stage, b.stage)
        for texts in schedule.actions
        for text in texts
        if len(actions := parse_actions(text)) == 2
        for f, b in [sorted(actions, key=lambda action: action.kind != "F")]
    }
    found: dict[int, list[int]] = {}
    for forward, backward in sorted(pairs):
        found.setdefault(forward, []).append(backward)
    return found


def check_overlap(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC105 for an overlap that lacks its program, PPC503 for one that is not its parts.

    Most run times run the two one after the other, and need no program for both. The one whose
    last forward computes the loss (torchtitan's GraphPP) takes the overlap for one action.
    """
    pairs = overlapped(manifest.schedule)
    needed = pairs if manifest.stages[-1].returns_loss else {}
    for stage in manifest.stages:
        backwards, program = pairs.get(stage.index, []), stage.programs.get("overlap")
        where = Where(stage=stage.index, program="overlap")
        if program is None:
            if stage.index in needed:
                expected = f"one, with the backward of stage {listed(map(str, backwards))}"
                yield _finding("PPC105", where, "is missing", expected, "none")
            continue
        others = [s.programs.get("backward") for s in manifest.stages if s.index in backwards]
        if len(others) != 1 or others[0] is None:
            expected = "the backward of one stage, which its forward overlaps"
            yield _finding("PPC503", where, "has no parts", expected, f"{len(others)} stages")
            continue
        forward, backward = stage.programs["forward"], others[0]
        for field, found, parts in (
            ("inputs", program.inputs, (*backward.inputs, *forward.inputs)),
            ("outputs", program.outputs, (*backward.outputs, *forward.outputs)),
        ):
            if found != parts:
                place = Where(stage=stage.index, program="overlap", field=field)
                yield _finding("PPC503", place, "is not its parts", *_first(parts, found))


def _first(expected: tuple[Value, ...], found: tuple[Value, ...]) -> tuple[str, str]:
    """Return texts of the first values in which two differ."""
    for one, other in zip(expected, found, strict=False):
        if one != other:
            return (
                f"{one.kind} {one.name}: {one.tensor}",
                f"{other.kind} {other.name}: {other.tensor}",
            )
    return f"{len(expected)} values", f"{len(found)} values"


def _finding(code: str, where: Where, what: str, expected: str, found: str) -> Finding:
    return Finding(
        code=code,
        message=f"the overlap program of stage {where.stage} {what}",
        where=where,
        expected=expected,
        found=found,
        hint="build again with the job's schedule",
    )
