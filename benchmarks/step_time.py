"""How long a steady step takes, and how much of it ranks wait, for every pipeline schedule.

``python -m benchmarks.step_time [--repeat 3] [--ranks 2] [--schedules …] [--json FILE]``

- ``ours``: from a store that was built before; no compiler on ``PATH``, policy strict.
- ``graph_pp``: torchtitan's GraphPP, compiled whole by Inductor in its first step.
- ``eager``: the same model through torchtitan's own pipeline, without compilation.
- ``eager_plain``: the same with plain tensors for parameters, see :mod:`benchmarks.plain_llama3`.

Within a schedule all take the same weights, tokens and microbatches, and run next to each other, in
another order each time; nobody recomputes activations but where a partitioner finds it cheaper, and
GraphPP's is not ours. A step is the slowest rank's ``forward_backward_step``, which all ranks enter
together; the bubble is the part of all ranks' time that is not spent in compute actions, so that it
includes waiting for messages, and for a core where there are more ranks than cores. Processor time
is that of all ranks; on a host that others use as well it says more than the clock. Ends with 1 if
a check fails.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import machine, step_report, step_tables
from benchmarks.graph_pp import RefusedError
from benchmarks.hosts import building_host
from benchmarks.job import Job
from benchmarks.measure import rotated
from benchmarks.options import at_least
from benchmarks.places import Places
from benchmarks.process import CommandError, end_children_when_ended, run
from benchmarks.step_report import Measured
from benchmarks.step_ways import OURS, SCHEDULES, WARMUP, WAYS, build
from benchmarks.tables import check_lines
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.graph.bubble import bubble_fraction
from pp_precompile.store.store import open_store

_WRAPPER_TIMEOUT = 600.0

console = Console(width=100, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return 0 if every check holds."""
    options = _options(argv)
    end_children_when_ended()
    folder = Path(tempfile.mkdtemp(prefix="pp_precompile-step_time-"))
    try:
        good = _run(options, folder)
    except (CommandError, PrecompileError, ValueError) as error:
        print(f"{error}\nthe output of every run is in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0 if good else 1


def _run(options: argparse.Namespace, folder: Path) -> bool:
    """Measure and report; returns whether every check holds."""
    facts = machine.describe()
    jobs = [_job(options, schedule) for schedule in options.schedules]
    console.print(f"{jobs[0].config}, {options.ranks} ranks\n{machine.one_line(facts)}")
    places = Places.below(folder)
    measured = [_built(job, folder, places) for job in jobs]
    wrapper = []
    report: dict[str, Any] = {}
    for repetition in range(options.repeat):
        console.print(f"repetition {repetition + 1} of {options.repeat}")
        for job, one in zip(jobs, measured, strict=True):
            _train(job, one, rotated(options.ways, repetition), folder / str(repetition), places)
        wrapper.append(_wrapper(folder / str(repetition), places))
        report = step_report.as_dict(
            jobs[0], facts, measured, ways=list(options.ways), wrapper=wrapper
        )
        if options.json is not None:
            # Each time: what was measured in an hour is kept if the next run fails.
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    _print(report)
    return all(report["checks"].values())


def _job(options: argparse.Namespace, schedule: str) -> Job:
    return Job(
        module=options.module,
        config=options.config,
        degree=options.ranks,
        steps=WARMUP + options.steps,
        schedule=schedule,
    )


def _built(job: Job, folder: Path, places: Places) -> Measured:
    """Build the job's stages, and read its schedule back from the store."""
    schedule = job.schedule or ""
    known = open_store(places.store, create=True).builds
    before = set(known.ids())
    seconds = build(job, folder / f"build_{schedule}", places)
    (new,) = set(known.ids()) - before
    bubble = 100 * float(bubble_fraction(known.read(new).schedule))
    console.print(f"{schedule}: built in {seconds:.1f} s, bubble at unit times {bubble:.1f} %")
    return Measured(schedule=schedule, unit_bubble=bubble, build_seconds=seconds)


def _train(job: Job, measured: Measured, ways: Sequence[str], folder: Path, places: Places) -> None:
    """Run the job once in every way that does not refuse it, and keep what it reports."""
    for way in ways:
        if way in measured.refused:
            continue
        try:
            steps = WAYS[way](job, folder / f"{measured.schedule}_{way}", places)
        except RefusedError as error:
            measured.refused[way] = str(error)
            console.print(f"{measured.schedule}, {way}: refused: {error}")
            continue
        measured.runs.setdefault(way, []).append(steps)
        texts = (
            f"{name} {measured.figure(way, name)[-1]:.3g}" for name in ("step", "bubble", "cpu")
        )
        console.print(f"{measured.schedule}, {way}: {', '.join(texts)}")


def _wrapper(folder: Path, places: Places) -> dict[str, object]:
    """Measure what is around a call of a program, in a process of its own."""
    file = folder / "wrapper.json"
    host = building_host(folder / "wrapper") | {"TORCHINDUCTOR_CACHE_DIR": str(places.cache)}
    command = [sys.executable, "-m", "benchmarks.wrapper_overhead", "--profile"]
    run(
        [*command, "--json", str(file)],
        host,
        output=folder / "wrapper.txt",
        timeout=_WRAPPER_TIMEOUT,
    )
    found: dict[str, object] = json.loads(file.read_text())
    return found


def _print(report: step_tables.Report) -> None:
    for grid in step_tables.grids(report):
        table = Table(*grid.head, box=box.SIMPLE_HEAD)
        for row in grid.rows:
            table.add_row(*row)
        for column in table.columns[1:]:
            column.justify = "right"
        console.print(table)
    console.print("\n".join(step_tables.refusals(report)))
    console.print("\n".join(check_lines(report["checks"])))
    largest = step_tables.largest_loss_difference(report)
    console.print(f"largest relative difference of a loss to ours: {largest:.1e}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.step_time", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--repeat", type=at_least(1), default=3, help="repetitions (3)")
    parser.add_argument("--ranks", type=int, default=2, choices=(2, 4), help="ranks (2)")
    parser.add_argument("--steps", type=at_least(1), default=10, help="steps that count (10)")
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES, choices=SCHEDULES)
    parser.add_argument("--ways", nargs="+", default=tuple(WAYS), choices=tuple(WAYS))
    parser.add_argument("--module", default="pp_precompile.models.llama3")
    parser.add_argument("--config", default="llama3_debugmodel_sdpa")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write samples and ratios")
    options = parser.parse_args(argv)
    if OURS not in options.ways:
        parser.error(f"--ways must name {OURS}: everything is compared with it")
    return options


if __name__ == "__main__":
    sys.exit(main())
