"""Put measured tables into README.md: ``python -m benchmarks.readme FILE.json…``.

The files come from ``python -m benchmarks.warm_start --json FILE``, and so from
``benchmarks.step_time`` and ``benchmarks.store``. Each of these has a section between two marks;
only what stands there is replaced, and only if a file of that benchmark is given. So no number in
these sections was typed by hand.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import step_report, step_tables, store_report, store_tables
from benchmarks.counted import COUNTS
from benchmarks.machine import one_line
from benchmarks.outcome import PHASES
from benchmarks.process import ROOT
from benchmarks.ratios import RATIOS
from benchmarks.spread import spread

Report = Mapping[str, Any]


class Marks(NamedTuple):
    """The lines before and after a section."""

    begin: str
    end: str


WARM_START = Marks(
    "<!-- measured by benchmarks.warm_start, written by benchmarks.readme -->",
    "<!-- end of what was measured -->",
)
STEP_TIME = Marks(
    "<!-- measured by benchmarks.step_time, written by benchmarks.readme -->",
    "<!-- end of what benchmarks.step_time measured -->",
)
STORE = Marks(
    "<!-- measured by benchmarks.store, written by benchmarks.readme -->",
    "<!-- end of what benchmarks.store measured -->",
)


def main(argv: Sequence[str]) -> int:
    """Rewrite the sections that the named files are for."""
    if not argv:
        print("usage: python -m benchmarks.readme FILE.json…", file=sys.stderr)
        return 2
    reports = [json.loads(Path(name).read_text(encoding="utf-8")) for name in argv]
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    for marks, content in sections(reports):
        text = replaced(text, content, marks)
    readme.write_text(text, encoding="utf-8")
    return 0


def replaced(text: str, content: str, marks: Marks) -> str:
    """Return ``text`` with ``content`` between the marks.

    Raises:
        ValueError: if a mark is missing or stands there twice.
    """
    before, begin, rest = text.partition(marks.begin)
    _, end, after = rest.partition(marks.end)
    if not begin or not end or marks.begin in rest or marks.end in after:
        raise ValueError(f"the page must have each of these marks once, in order: {marks}")
    return f"{before}{marks.begin}\n\n{content}\n{marks.end}{after}"


def sections(reports: Iterable[Report]) -> Iterator[tuple[Marks, str]]:
    """Yield the marks and the content of every section that a report is for."""
    texts: dict[Marks, list[str]] = {}
    for report in reports:
        marks, write = _SECTIONS.get(report.get("benchmark", ""), (WARM_START, _starts))
        texts.setdefault(marks, []).append(write(report))
    for marks, parts in texts.items():
        yield marks, "\n".join(parts)


def _steps(report: Report) -> str:
    machine = f"Machine: {one_line(report['machine'])}."
    lines = [f"{step_tables.job_line(report)} {machine}", ""]
    for grid in step_tables.grids(report):
        lines += [grid.markdown(), ""]
    lines += [f"{text}\n" for text in step_tables.refusals(report)]
    largest = step_tables.largest_loss_difference(report)
    return "\n".join([*lines, _checked(report, largest), ""])


def _store(report: Report) -> str:
    lines = [store_tables.what(report), ""]
    for grid in store_tables.grids(report):
        lines += [grid.markdown(), ""]
    return "\n".join([*lines, f"Checked: {_checks(report)}.", ""])


def _checked(report: Report, largest: float) -> str:
    return f"Checked: {_checks(report)} (largest difference {largest:.0e})."


def _checks(report: Report) -> str:
    return "; ".join(
        what if holds else f"**not**: {what}" for what, holds in report["checks"].items()
    )


def _starts(report: Report) -> str:
    phases, ratios = report["phases"], report["ratios"]
    ways = list(phases)
    head = (
        f"{job_text(report)} Machine: {one_line(report['machine'])}. The build took "
        f"{report['build_seconds']:.0f} s.\n"
    )
    rows = [
        _row(title, *(_text(phases[way][name]) for way in ways)) for name, title in PHASES.items()
    ]
    lines = [head, _row("phase (seconds)", *ways), _row("---", *("---:" for _ in ways)), *rows]
    lines += [*_counts(report["samples"]), ""]
    lines += [_row("ratio", "of phase", "median (min–max)"), _row("---", "---", "---:")]
    lines += [_row(f"`{name}`", _phase(name), _text(ratio)) for name, ratio in ratios.items()]
    if "builds" in report:
        lines += ["", *_builds(report["builds"])]
    lines += ["", *(f"{way}: “{reason}”\n" for way, reason in report.get("refused", {}).items())]
    return "\n".join([*lines, _checked(report, report["eager_loss_difference"]), ""])


def job_text(report: Report) -> str:
    """Return the job whose starts a report is about, in one sentence."""
    job = report["job"]
    count = len(report["samples"][next(iter(report["phases"]))])
    shard = job.get("shard", 1)
    sharded = f", FSDP over {shard} ranks" if shard > 1 else ""
    schedule = f", {job['schedule']}" if job.get("schedule") else ""
    front_end = job.get("front_end", "stage")
    other = "" if front_end == "stage" else f", front end `{front_end}`"
    return (
        f"`{job['config']}`{other}, pipeline degree {job['degree']}{schedule}{sharded}, "
        f"{job['steps']} steps, repetitions: {count}."
    )


def _counts(samples: Mapping[str, Any]) -> Iterator[str]:
    """Yield rows of what the ranks of a run compiled and loaded, where runs counted it."""
    first = {way: runs[0].get("counts") for way, runs in samples.items()}
    if all(first.values()):
        for name, title in COUNTS.items():
            yield _row(title, *(f"{counts[name]:,}" for counts in first.values()))


def _phase(ratio: str) -> str:
    """Return what a ratio is about: a phase of starts, else whole builds."""
    return PHASES[RATIOS[ratio][2]] if ratio in RATIOS else "build, whole command"


def _builds(builds: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of the builds of :mod:`benchmarks.build_sharing`."""
    yield f"Builds of a model of {builds['layers']} equal layers, with `--jobs {builds['jobs']}`:"
    yield ""
    yield _row("build", "seconds", "of processors", "programs", "distinct", "bytes of blobs")
    yield _row("---", *("---:" for _ in range(5)))
    for name, seconds in builds["seconds"].items():
        runs = builds["samples"][name]
        cpu = spread([made["cpu_seconds"] for made in runs]).text()
        counts = (f"{runs[0][what]:,}" for what in ("programs", "distinct", "blob_bytes"))
        yield _row(f"`{name}`", _text(seconds), cpu, *counts)


def _text(measured: Mapping[str, Any]) -> str:
    return spread(measured["samples"]).text()


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


_SECTIONS = {
    step_report.BENCHMARK: (STEP_TIME, _steps),
    store_report.BENCHMARK: (STORE, _store),
}
"""Marks and writer by what a report calls its benchmark; those of warm starts don't say."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
