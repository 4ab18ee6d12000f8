"""Put starts of several front ends into one table of docs/front-ends.md.

``python -m benchmarks.front_ends_page FILE.json…`` with files of
``python -m benchmarks.warm_start --front-end NAME --json FILE``, a row for each.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import one_line
from benchmarks.process import ROOT
from benchmarks.readme import Marks, job_text, replaced
from benchmarks.spread import spread
from benchmarks.ways import BLOCK_WAYS, COLD, EAGER, GRAPH_PP_WAYS, WARM

Report = Mapping[str, Any]

PAGE = ROOT / "docs" / "front-ends.md"

MARKS = Marks(
    "<!-- measured by benchmarks.warm_start, written by benchmarks.front_ends_page -->",
    "<!-- end of what was measured -->",
)

_OTHERS = (EAGER, *GRAPH_PP_WAYS, *BLOCK_WAYS)


def main(argv: Sequence[str]) -> int:
    """Rewrite the page's table."""
    if not argv:
        print("usage: python -m benchmarks.front_ends_page FILE.json…", file=sys.stderr)
        return 2
    reports = [json.loads(Path(name).read_text(encoding="utf-8")) for name in argv]
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(text, section(reports), MARKS), encoding="utf-8")
    return 0


def section(reports: Sequence[Report]) -> str:
    """Return jobs, machine, and the tables of what ``reports`` measured, in their order."""
    machines = dict.fromkeys(one_line(report["machine"]) for report in reports)
    lines = [f"Machine: {'; '.join(machines)}.", ""]
    lines += [f"- `{_name(report)}`: {job_text(report)}" for report in reports]
    lines += ["", *_starts(reports), "", *_programs(reports), "", *_other_ways(reports), ""]
    return "\n".join([*lines, *_checks(reports), ""])


def _starts(reports: Sequence[Report]) -> Iterator[str]:
    yield from _head("seconds", "stages, cold", "warm, fresh host", "cold/warm", *_DONE)
    for report in reports:
        phases, ratio = report["phases"], report["ratios"][f"{COLD}/{WARM}"]
        stages = (_text(phases[way]["stages"]) for way in (COLD, WARM))
        done = (_text(phases[way]["first_step_done"]) for way in (COLD, WARM))
        yield _row(f"`{_name(report)}`", *stages, _text(ratio), *done)


_DONE = ("process start to end of step 1, cold", "warm")


def _programs(reports: Sequence[Report]) -> Iterator[str]:
    what = ("compiled, cold", "compiled, warm", "loaded, warm", "bytes loaded, warm")
    yield from _head("programs, all ranks", *what)
    for report in reports:
        cold, warm = (report["samples"][way][0]["counts"] for way in (COLD, WARM))
        counts = (cold["compiled"], warm["compiled"], warm["loaded"], warm["bytes_loaded"])
        yield _row(f"`{_name(report)}`", *(f"{count:,}" for count in counts))


def _other_ways(reports: Sequence[Report]) -> Iterator[str]:
    yield from _head("next to", "way", "process start to end of step 1", "later steps", "ours")
    for report in reports:
        phases = report["phases"]
        for way in (way for way in _OTHERS if way in phases):
            times = (_text(phases[way][name]) for name in ("first_step_done", "steady_step"))
            yield _row(f"`{_name(report)}`", way, *times, _text(phases[WARM]["steady_step"]))


def _checks(reports: Sequence[Report]) -> Iterator[str]:
    """Yield a line for each check, with those that it was made of."""
    checked: dict[tuple[str, bool], list[str]] = {}
    for report in reports:
        for check in report["checks"].items():
            checked.setdefault(check, []).append(f"`{_name(report)}`")
    for (what, holds), names in checked.items():
        yield f"- Checked of {', '.join(names)}: {'' if holds else '**not**: '}{what}."


def _name(report: Report) -> str:
    return str(report["job"]["front_end"])


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield _row("---", *("---:" for _ in cells[1:]))


def _text(measured: Mapping[str, Any]) -> str:
    return spread(measured["samples"]).text()


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
