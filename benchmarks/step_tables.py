"""A measurement of steps as tables, for a terminal or for Markdown; reads the report's JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.spread import spread
from benchmarks.step_ways import OURS

Report = Mapping[str, Any]

REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: a head and rows of equally many cells; the first column is text."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table in Markdown."""
        line = ["---", *("---:" for _ in self.head[1:])]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (self.head, line, *self.rows))


def grids(report: Report) -> Iterator[Grid]:
    """Yield every table of a report."""
    ways = report["ways"]
    yield _of_figure(report, "step (seconds)", "step", ways)
    yield _of_ratio(report, "step", "", ways)
    yield _of_ratio(report, "processor time", "_cpu", ways)
    yield _of_figure(report, "bubble (%)", "bubble", ways, "unit times")
    compiled = [way for way in ways if any("around" in one for one in _figures_of(report, way))]
    yield _of_figure(report, "around programs (ms a step)", "around", compiled)
    if report["wrapper"]:
        yield _wrapper(report["wrapper"])


def refusals(report: Report) -> list[str]:
    """Return a sentence for every schedule that a way does not run."""
    return [
        f"{way} refuses {schedule}: “{reason}”"
        for schedule, found in report["schedules"].items()
        for way, reason in found["refused"].items()
    ]


def largest_loss_difference(report: Report) -> float:
    """Return the largest relative difference of a loss to ours, over schedules and ways."""
    return max(max(found["loss_differences"].values()) for found in report["schedules"].values())


def job_line(report: Report) -> str:
    """Return what was run, as a sentence."""
    job, wanted = report["job"], next(iter(report["samples"].values()))
    repetitions = len(next(iter(wanted.values())))
    return (
        f"`{job['config']}`, {job['ranks']} ranks, median of {job['steps']} steps after "
        f"{job['warmup']} to warm up, repetitions: {repetitions}."
    )


def _of_figure(
    report: Report, title: str, name: str, ways: Sequence[str], extra: str | None = None
) -> Grid:
    """Return one figure of every schedule by way; ``extra`` heads the bubble at unit times."""
    rows = []
    for schedule, found in report["schedules"].items():
        cells = [
            _text(found["ways"][way][name]) if way in found["ways"] else REFUSED for way in ways
        ]
        more = [f"{found['unit_bubble']:.1f}"] if extra else []
        rows.append((schedule, *more, *cells))
    return Grid(head=(title, *([extra] if extra else []), *ways), rows=rows)


def _of_ratio(report: Report, title: str, suffix: str, ways: Sequence[str]) -> Grid:
    """Return one kind of ratio for every schedule by way."""
    others = [way for way in ways if way != OURS]
    rows = [
        (
            schedule,
            *(
                REFUSED
                if way in found["refused"]
                else _text(report["ratios"][f"{way}/{OURS}{suffix}[{schedule}]"])
                for way in others
            ),
        )
        for schedule, found in report["schedules"].items()
    ]
    return Grid(head=(f"{title}, ratio", *(f"{way}/{OURS}" for way in others)), rows=rows)


def _wrapper(repetitions: Sequence[Mapping[str, Any]]) -> Grid:
    """Return what is around one call of a program, by stage and kind of action."""
    first = repetitions[0]
    kinds = list(next(iter(first["stages"].values())))

    def cells(times: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            spread([one[kind]["overhead"] for one in times]).text() if kind in times[0] else "–"
            for kind in kinds
        ]

    rows = [
        (f"stage of {stage}", *cells([one["stages"][stage] for one in repetitions]))
        for stage in first["stages"]
    ]
    rows.append(("autograd alone", *cells([one["autograd"] for one in repetitions])))
    return Grid(head=(f"around one call (µs; goal below {first['goal']:.0f})", *kinds), rows=rows)


def _figures_of(report: Report, way: str) -> Iterator[Mapping[str, Any]]:
    return (found["ways"].get(way, {}) for found in report["schedules"].values())


def _text(measured: Mapping[str, Any]) -> str:
    return spread(measured["samples"]).text()
