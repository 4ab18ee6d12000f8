"""Put measured tables into README.md: ``python -m benchmarks.readme FILE.json…``.

The files come from ``python -m benchmarks.warm_start --json FILE``. Only what stands between the
two marks is replaced, so that no number in that section was typed by hand.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import one_line
from benchmarks.outcome import PHASES
from benchmarks.process import ROOT
from benchmarks.ratios import RATIOS
from benchmarks.spread import spread

BEGIN = "<!-- measured by benchmarks.warm_start, written by benchmarks.readme -->"
END = "<!-- end of what was measured -->"


def main(argv: Sequence[str]) -> int:
    """Rewrite the section from the named files."""
    if not argv:
        print("usage: python -m benchmarks.readme FILE.json…", file=sys.stderr)
        return 2
    reports = [json.loads(Path(name).read_text(encoding="utf-8")) for name in argv]
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(replaced(text, section(reports)), encoding="utf-8")
    return 0


def replaced(text: str, content: str) -> str:
    """Return ``text`` with ``content`` between the marks.

    Raises:
        ValueError: if a mark is missing or stands there twice.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError("README.md must have each of the two marks once, in order")
    return f"{before}{BEGIN}\n\n{content}\n{END}{after}"


def section(reports: Iterable[Mapping[str, Any]]) -> str:
    """Return the measured tables of all reports, a report after the other."""
    return "\n".join(_measured(report) for report in reports)


def _measured(report: Mapping[str, Any]) -> str:
    job, phases, ratios = report["job"], report["phases"], report["ratios"]
    ways = list(phases)
    count = len(report["samples"][ways[0]])
    head = (
        f"`{job['config']}`, pipeline degree {job['degree']}, {job['steps']} steps, repetitions: "
        f"{count}. Machine: {one_line(report['machine'])}. The build took "
        f"{report['build_seconds']:.0f} s.\n"
    )
    rows = [
        _row(title, *(_text(phases[way][name]) for way in ways)) for name, title in PHASES.items()
    ]
    lines = [head, _row("phase (seconds)", *ways), _row("---", *("---:" for _ in ways)), *rows, ""]
    lines += [_row("ratio", "of phase", "median (min–max)"), _row("---", "---", "---:")]
    lines += [
        _row(f"`{name}`", PHASES[RATIOS[name][2]], _text(ratio)) for name, ratio in ratios.items()
    ]
    largest = f"{report['eager_loss_difference']:.0e}"
    checks = "; ".join(
        what if holds else f"**not**: {what}" for what, holds in report["checks"].items()
    )
    return "\n".join([*lines, "", f"Checked: {checks} (largest difference {largest}).", ""])


def _text(measured: Mapping[str, Any]) -> str:
    return spread(measured["samples"]).text()


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
