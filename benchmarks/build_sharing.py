"""How long a build takes as the same layers are cut into more stages: most of them are equal.

``python -m benchmarks.build_sharing [--repeat 3] [--layers 64] [--jobs 1] [--json FILE]``

Builds a debug model with many layers for pipelines of 4, 8 and 16 ranks, each time on a fresh host
with empty caches, repetitions interleaved. Ends with 1 if a check fails.
"""

import argparse
import json
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import launch, machine
from benchmarks.hosts import building_host
from benchmarks.measure import order
from benchmarks.options import at_least
from benchmarks.process import CommandError
from benchmarks.spread import Spread, ratio, spread
from benchmarks.tables import check_lines
from pp_precompile.store.store import open_store

BENCHMARK = "build_sharing"
"""What reports call this benchmark."""

DEGREES = (4, 8, 16)
"""Ranks of the pipelines; ratios are to the first."""

LAYERS = (8, 16, 64)
"""The models that :mod:`benchmarks.many_layers` has; 8 are too few for 16 ranks."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One build: wall and processor time of the whole command, and what its store then holds."""

    seconds: float
    cpu_seconds: float
    programs: int
    distinct: int
    blob_bytes: int

    def as_dict(self) -> dict[str, float]:
        """Return everything, as JSON can hold it."""
        return dict(vars(self))


Builds = Mapping[str, Sequence[Build]]
"""The builds of each way (``build_pp4``, …) in the order of the repetitions."""


def way(degree: int) -> str:
    """Return how a build for ``degree`` ranks is called."""
    return f"build_pp{degree}"


def build(degree: int, layers: int, folder: Path, *, jobs: int = 1) -> Build:
    """Build on a fresh host with a compiler, and look into the store.

    Raises:
        CommandError: if the build fails or hangs.
    """
    words = [
        *("--module", "benchmarks.many_layers", "--config", f"llama3_{layers}_layers"),
        *("--parallelism.pipeline_parallel_degree", str(degree)),
        *("--jobs", str(jobs), "--debug.seed", "42", "--compile.precompile"),
    ]
    store = folder / "store"
    before = _cpu_of_children()
    seconds = launch.build(words, building_host(folder / "host"), folder, store=store)
    cpu_seconds = _cpu_of_children() - before
    builds = open_store(store, create=False).builds
    [build_id] = builds.ids()
    records = [
        program for stage in builds.read(build_id).stages for program in stage.programs.values()
    ]
    sizes = {record.blob.digest: record.blob.size for record in records}
    return Build(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        programs=len(records),
        distinct=len({record.key for record in records}),
        blob_bytes=sum(sizes.values()),
    )


def _cpu_of_children() -> float:
    """Return the processor time of all that this process has started and that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(
    folder: Path,
    *,
    layers: int,
    repeat: int,
    jobs: int = 1,
    done: Callable[[int, str, Build], None] = lambda repetition, name, made: None,
) -> Builds:
    """Build ``repeat`` times for every number of ranks; the folder of each is deleted after it.

    Raises:
        CommandError: if a build fails or hangs; its folder stays.
    """
    degrees = {way(degree): degree for degree in DEGREES if degree <= layers}
    samples: dict[str, list[Build]] = {name: [] for name in degrees}
    for repetition, name in order(list(degrees), repeat):
        place = folder / f"{name}_{repetition}"
        samples[name].append(build(degrees[name], layers, place, jobs=jobs))
        shutil.rmtree(place)
        done(repetition, name, samples[name][-1])
    return samples


def seconds(builds: Builds) -> dict[str, Spread]:
    """Return the spread of the wall time of each way."""
    return {name: spread([made.seconds for made in runs]) for name, runs in builds.items()}


def ratios(builds: Builds) -> dict[str, Spread]:
    """Return every way's time over that of the first, ``build_pp16/build_pp4`` and so on."""
    first, *others = builds
    below = [made.seconds for made in builds[first]]
    return {
        f"{name}/{first}": ratio([made.seconds for made in builds[name]], below) for name in others
    }


def checks(builds: Builds) -> dict[str, bool]:
    """Return what must hold, by a sentence each."""
    distinct = {made.distinct for runs in builds.values() for made in runs}
    more = [runs[0].programs for runs in builds.values()]
    return {
        "builds for more ranks have more programs, and as many distinct ones": (
            len(distinct) == 1 and more == sorted(set(more))
        ),
        "builds for more ranks, whose stages have fewer layers, take fewer bytes": all(
            later[0].blob_bytes < earlier[0].blob_bytes
            for earlier, later in zip(
                list(builds.values()), list(builds.values())[1:], strict=False
            )
        ),
    }


def as_dict(builds: Builds, *, layers: int, jobs: int) -> dict[str, Any]:
    """Return everything that was measured; times are in seconds."""
    return {
        "layers": layers,
        "jobs": jobs,
        "seconds": {name: each.as_dict() for name, each in seconds(builds).items()},
        "samples": {name: [made.as_dict() for made in runs] for name, runs in builds.items()},
    }


def merged(
    report: Mapping[str, Any], builds: Builds, *, layers: int, jobs: int = 1
) -> dict[str, Any]:
    """Return a benchmark's report with these builds, their ratios and checks in it."""
    found = {name: each.as_dict() for name, each in ratios(builds).items()}
    return {
        **report,
        "builds": as_dict(builds, layers=layers, jobs=jobs),
        "ratios": {**report.get("ratios", {}), **found},
        "checks": {**report.get("checks", {}), **checks(builds)},
    }


def table(builds: Builds) -> Table:
    """Return a table with a row for each way, and the ratios below it."""
    grid = Table("build", "seconds", "of processors", box=box.SIMPLE_HEAD)
    for title in ("programs", "distinct", "bytes of blobs"):
        grid.add_column(title)
    for name, each in seconds(builds).items():
        made = builds[name][0]
        cpu = spread([run.cpu_seconds for run in builds[name]])
        counts = (str(made.programs), str(made.distinct), f"{made.blob_bytes:,}")
        grid.add_row(name, each.text(), cpu.text(), *counts)
    for column in grid.columns[1:]:
        column.justify = "right"
    grid.caption = "\n".join(f"{name} {each.text()}" for name, each in ratios(builds).items())
    return grid


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return 0 if every check holds."""
    options = _options(argv)
    console = Console(width=100, soft_wrap=True)
    facts = machine.describe()
    console.print(f"{options.layers} layers, {options.jobs} job(s)\n{machine.one_line(facts)}")
    folder = Path(tempfile.mkdtemp(prefix="pp_precompile-build_sharing-"))

    def done(repetition: int, name: str, made: Build) -> None:
        console.print(f"repetition {repetition + 1}, {name}: {made.seconds:.1f} s")

    try:
        builds = measure(
            folder, layers=options.layers, repeat=options.repeat, jobs=options.jobs, done=done
        )
    except CommandError as error:
        print(f"{error}\nthe output of every run is in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    console.print(table(builds))
    found = checks(builds)
    console.print("\n".join(check_lines(found)))
    if options.json is not None:
        report = {"benchmark": BENCHMARK, "machine": facts}
        report = merged(report, builds, layers=options.layers, jobs=options.jobs)
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if all(found.values()) else 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.build_sharing", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--repeat", type=at_least(1), default=3, help="repetitions (3)")
    parser.add_argument("--layers", type=int, default=64, choices=LAYERS, help="layers (64)")
    parser.add_argument("--jobs", type=at_least(1), default=1, help="of each build (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write samples and ratios")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
