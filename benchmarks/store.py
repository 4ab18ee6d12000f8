"""How fast the store is, next to git's object store and plain files.

    python -m benchmarks.store [--repeat N] [--json FILE] [--folder DIR]

Three parts, each in every repetition: publishing and loading blobs of several sizes in several ways
(``store_throughput`` says what each does and leaves out), into an empty place and so with the
folders that it makes; one process and several in one store at once; checking and collecting a store
of many small blobs. Nothing of torch is imported. The exit code is 1 if a check fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import (
    machine,
    store_contention,
    store_git,
    store_report,
    store_tables,
    store_throughput,
    store_upkeep,
)
from benchmarks.options import at_least
from benchmarks.process import end_children_when_ended
from benchmarks.store_contention import Crowd, Load
from benchmarks.store_report import Measured
from benchmarks.store_throughput import Blobs
from benchmarks.tables import check_lines

console = Console(width=150, highlight=False)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much of everything."""

    blobs: tuple[tuple[int, int], ...] = ((2**16, 256), (2**20, 32), (2**24, 4))
    """Sizes in bytes, each with a number of blobs."""
    processes: int = 8
    published: int = 64
    published_bytes: int = 2**18
    """How many blobs each process publishes, and how large ones."""
    upkeep: int = 10_000
    upkeep_bytes: int = 2**13


QUICK = Settings(
    blobs=((2**12, 3),),
    processes=2,
    published=40,
    published_bytes=2**12,
    upkeep=40,
    upkeep_bytes=100,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; returns 1 if a check fails."""
    options = _options(argv)
    end_children_when_ended()
    folder = Path(tempfile.mkdtemp(prefix="pp_store_benchmark_", dir=options.folder)).absolute()
    try:
        report = _run(options, QUICK if options.quick else Settings(), folder)
    finally:
        shutil.rmtree(folder)
    return 0 if all(report["checks"].values()) else 1


def _run(options: argparse.Namespace, settings: Settings, folder: Path) -> dict[str, Any]:
    facts = machine.describe() | {
        "git": store_git.version(),
        "file_system": _file_system(folder),
        "load_average": os.getloadavg()[0],
    }
    measured = _prepare(settings, folder)
    sources = [
        store_throughput.make_sources(blobs, folder / f"source_{blobs.size}")
        for blobs in measured.blobs
    ]
    report: dict[str, Any] = {}
    for repetition in range(options.repeat):
        console.print(f"repetition {repetition + 1} of {options.repeat}")
        for blobs, paths in zip(measured.blobs, sources, strict=True):
            store_throughput.measure(blobs, paths, folder, repetition)
        for pair in measured.crowds:
            # Whoever is first goes second the next time.
            for crowd in pair[:: 1 if repetition % 2 == 0 else -1]:
                store_contention.measure(crowd, folder / "crowd")
        store_upkeep.measure(measured.upkeep, folder, repetition)
        report = store_report.as_dict(facts, measured)
        if options.json is not None:
            # Each time: what was measured is kept if the next repetition fails.
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    _print(report)
    return report


def _prepare(settings: Settings, folder: Path) -> Measured:
    loads = [Load(settings.published, settings.published_bytes, same) for same in (False, True)]
    return Measured(
        blobs=tuple(Blobs(size=size, count=count) for size, count in settings.blobs),
        crowds=tuple(
            (Crowd(load=load, processes=1), Crowd(load=load, processes=settings.processes))
            for load in loads
        ),
        upkeep=store_upkeep.prepare(
            folder, blobs=settings.upkeep, blob_bytes=settings.upkeep_bytes
        ),
    )


def _file_system(folder: Path) -> str:
    command = ["df", "--output=fstype", str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


def _print(report: store_tables.Report) -> None:
    console.print(store_tables.what(report))
    for grid in store_tables.grids(report):
        table = Table(*grid.head, box=box.SIMPLE_HEAD)
        for row in grid.rows:
            table.add_row(*row)
        for column in table.columns[1:]:
            column.justify = "right"
        console.print(table)
    console.print("\n".join(check_lines(report["checks"])))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.store", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--repeat", type=at_least(1), default=3, help="repetitions (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write samples and ratios")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="on which disk (that of temporary files)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
