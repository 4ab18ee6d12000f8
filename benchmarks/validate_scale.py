"""How the time to validate a build grows with its stages, microbatches and ranks.

    python -m benchmarks.validate_scale [--repeat N] [--json FILE]

Times reading a manifest (``Manifest.from_bytes``) and checking it (``check_build``, the host
included, blobs not) in this process: wall time and, since a shared machine disturbs that, the CPU
time of its one thread. Sizes take turns, so that a disturbance meets all of them. The last column
says by which factor the CPU time for one action changes from the size before: near 1 means that it
grows linearly with the schedule, and not with the number of ranks.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.spread import Spread, ratio, spread
from benchmarks.synthetic_build import synthetic_build
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.check import check_build


class Size(NamedTuple):
    """A build to make: one stage on each pipeline rank, ``ranks`` in all."""

    stages: int
    microbatches: int
    ranks: int


SIZES = (
    Size(8, 32, 8),
    Size(16, 64, 16),
    Size(32, 128, 32),
    Size(64, 256, 64),
    Size(64, 256, 1024),
    Size(64, 256, 16384),
    Size(64, 512, 16384),
)


class Case:
    """One size with the samples taken of it, in seconds."""

    def __init__(self, size: Size) -> None:
        """Make the build and check that it fits, since else not all checks would run."""
        self.size = size
        self.data = synthetic_build(*size).to_bytes()
        self.manifest = Manifest.from_bytes(self.data)
        self.actions = sum(map(len, self.manifest.schedule.actions))
        self.samples: dict[str, list[float]] = {"read": [], "check": [], "check_cpu": []}
        findings = check_build(self.manifest, host=self.manifest.environment)
        if findings:
            raise ValueError(f"the synthetic build does not fit: {findings[0]}")

    def run(self) -> None:
        """Take one sample of everything."""
        gc.collect()
        start = time.perf_counter()
        Manifest.from_bytes(self.data)
        read = time.perf_counter()
        cpu = time.process_time()
        check_build(self.manifest, host=self.manifest.environment)
        self.samples["check_cpu"].append(time.process_time() - cpu)
        self.samples["check"].append(time.perf_counter() - read)
        self.samples["read"].append(read - start)

    def per_action(self) -> list[float]:
        """Return the CPU time of a check for one action, in each sample."""
        return [seconds / self.actions for seconds in self.samples["check_cpu"]]


def growth(before: Case, case: Case) -> Spread:
    """Return by which factor the CPU time for one action changes from one size to the next."""
    return ratio(case.per_action(), before.per_action())


def report(cases: Sequence[Case]) -> Table:
    """Return the cost curve as a table."""
    table = Table("stages", "microbatches", "ranks", "actions", box=box.SIMPLE_HEAD)
    for title in ("read s", "check s", "check CPU s", "CPU for one action"):
        table.add_column(title)
    for index, case in enumerate(cases):
        counts = (f"{count:,}" for count in (*case.size, case.actions))
        times = (spread(samples).text() for samples in case.samples.values())
        change = growth(cases[index - 1], case).text(" ×") if index else ""
        table.add_row(*counts, *times, change)
    for column in table.columns:
        column.justify = "right"
    return table


def document(cases: Sequence[Case]) -> dict[str, object]:
    """Return everything that was measured, as JSON can hold it."""
    rows = []
    for index, case in enumerate(cases):
        row: dict[str, object] = dict(case.size._asdict())
        row |= {"actions": case.actions, "bytes": len(case.data)}
        row |= {name: spread(samples).as_dict() for name, samples in case.samples.items()}
        row["growth"] = growth(cases[index - 1], case).as_dict() if index else None
        rows.append(row)
    return {"machine": machine.describe(), "rows": rows}


def main(argv: list[str]) -> int:
    """Measure all sizes and print them; returns 0."""
    parser = argparse.ArgumentParser(description="Time validating builds of growing size.")
    parser.add_argument("--repeat", type=int, default=5, help="samples of each size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    options = parser.parse_args(argv)
    cases = [Case(size) for size in SIZES]
    for _ in range(options.repeat):
        for case in cases:
            case.run()
    console = Console(width=130)
    console.print(machine.one_line(machine.describe()), soft_wrap=True)
    console.print(report(cases))
    if options.json:
        options.json.write_text(json.dumps(document(cases), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
