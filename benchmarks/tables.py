"""A measurement as tables to read."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from benchmarks.counted import COUNTS
from benchmarks.measure import Samples
from benchmarks.outcome import PHASES
from benchmarks.ratios import RATIOS
from benchmarks.spread import Spread


def phase_table(phases: Mapping[str, Mapping[str, Spread]]) -> Table:
    """Return a table of phases (rows) by way (columns), in seconds."""
    table = Table("phase (seconds)", *phases, box=box.SIMPLE_HEAD)
    for name, title in PHASES.items():
        table.add_row(title, *(spreads[name].text() for spreads in phases.values()))
    table.columns[0].no_wrap = True
    return _numbers_right(table)


def count_table(samples: Samples) -> Table:
    """Return a table of what all ranks of each way's first run compiled and loaded."""
    table = Table("of all ranks", *samples, box=box.SIMPLE_HEAD)
    for name, title in COUNTS.items():
        table.add_row(title, *(f"{runs[0].counts.get(name, 0):,}" for runs in samples.values()))
    return _numbers_right(table)


def ratio_table(ratios: Mapping[str, Spread]) -> Table:
    """Return a table of ratios with the phase that each is about."""
    table = Table("ratio", "of phase", "median (min–max)", box=box.SIMPLE_HEAD)
    for name, spread in ratios.items():
        table.add_row(name, PHASES[RATIOS[name][2]], spread.text(" ×"))
    return table


def check_lines(checks: Mapping[str, bool]) -> Sequence[str]:
    """Return a line for every check."""
    return [f"{'ok    ' if holds else 'FAILED'} {what}" for what, holds in checks.items()]


def _numbers_right(table: Table) -> Table:
    for column in table.columns[1:]:
        column.justify = "right"
    return table
