"""How long a start takes: cold, warm on a fresh host, and eager, side by side in one run.

``python -m benchmarks.warm_start [--repeat 5] [--degree 4] [--front-end stage] [--json FILE]``

- ``cold_jit``: no store, empty caches; stages are compiled on the fly, and stored.
- ``warm_fresh_host``: the store of a build; empty caches, no compiler on ``PATH``, policy strict.
- ``eager``: the same model through torchtitan's own pipeline, without compilation.

And where torchtitan's GraphPP runs the job, with its graphs compiled whole by Inductor:

- ``graph_pp_warm_cache``: in the place where it ran before, with Inductor's cache on the same disk.
- ``mega_cache``: on a fresh host with a compiler, with the artifacts that
  ``torch.compiler.save_cache_artifacts`` gave in an earlier run (see
  :mod:`benchmarks.recorded_graph_pp`).

With ``--front-end block`` torchtitan's own compilation of blocks takes their place, cold
(``block_jit``) and with Inductor's cache on the same disk (``block_warm_cache``).

Same seed, same machine, repetitions interleaved. Then, as often, the builds of
:mod:`benchmarks.build_sharing`; ``--layers 0`` leaves them out. Ends with 1 if a check fails.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import block_compile, build_sharing, graph_pp, machine, ratios, report, tables
from benchmarks.front_ends import BLOCK, FRONT_ENDS, PIPE
from benchmarks.job import Job, build
from benchmarks.measure import measure
from benchmarks.options import at_least
from benchmarks.outcome import Outcome
from benchmarks.places import Places
from benchmarks.process import CommandError, end_children_when_ended
from benchmarks.ways import BLOCK_WAYS, EAGER, GRAPH_PP_WAYS, WAYS, Way


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return 0 if every check holds."""
    options = _options(argv)
    front_end = FRONT_ENDS[options.front_end]
    job = Job(
        front_end=front_end,
        module=options.module or front_end.module,
        config=options.config or front_end.config,
        degree=options.degree,
        shard=options.shard,
        steps=options.steps,
        schedule=options.schedule if options.degree > 1 else None,
    )
    end_children_when_ended()
    folder = Path(tempfile.mkdtemp(prefix="pp_precompile-warm_start-"))
    try:
        good = _run(
            job, folder, repeat=options.repeat, layers=options.layers, json_file=options.json
        )
    except (CommandError, ValueError) as error:
        print(f"{error}\nthe output of every run is in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0 if good else 1


def _run(job: Job, folder: Path, *, repeat: int, layers: int, json_file: Path | None) -> bool:
    """Measure and report; returns whether every check holds."""
    console = Console(width=160, soft_wrap=True)
    facts = machine.describe()
    ranks = f"{job.degree} pipeline stage(s), {job.ranks} rank(s)"
    console.print(f"{job.config}, {ranks}\n{machine.one_line(facts)}")
    places = Places.below(folder)
    seconds = build(job, folder / "build", places.store)
    console.print(f"built in {seconds:.1f} s")
    ways, refused = _ways(job, folder, places)
    for way, reason in refused.items():
        console.print(f"{way}: refused: {reason}")

    def done(repetition: int, way: str, outcome: Outcome) -> None:
        phases = outcome.phases
        console.print(
            f"repetition {repetition + 1} of {repeat}, {way}: stages {phases['stages']:.2f} s, "
            f"process start to end of step 1 {phases['first_step_done']:.1f} s"
        )

    samples = measure(job, folder, places, ways, repeat=repeat, done=done)
    console.print(tables.phase_table(ratios.phases(samples)))
    console.print(tables.count_table(samples))
    console.print(tables.ratio_table(ratios.ratios(samples)))
    builds = _build_many(folder, console, repeat=repeat, layers=layers) if layers else None
    checks = ratios.checks(samples)
    if builds is not None:
        checks |= build_sharing.checks(builds)
    console.print("\n".join(tables.check_lines(checks)))
    console.print(f"largest relative difference to eager: {ratios.difference(samples, EAGER):.1e}")
    if json_file is not None:
        data = report.as_dict(job, facts, samples, build_seconds=seconds, refused=refused)
        if builds is not None:
            data = build_sharing.merged(data, builds, layers=layers)
        json_file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return all(checks.values())


def _ways(job: Job, folder: Path, places: Places) -> tuple[dict[str, Way], dict[str, str]]:
    """Return the ways to measure, and the reasons for those that do not run the job."""
    if job.front_end is PIPE:
        return WAYS, {}
    if job.front_end is BLOCK:
        block_compile.warm_cache(job, folder / "fill", places)
        return {**WAYS, **BLOCK_WAYS}, {}
    if job.degree == 1 or job.shard > 1:
        reason = "GraphPP runs pipelines only, and on a CPU none with data parallelism"
        return WAYS, dict.fromkeys(GRAPH_PP_WAYS, reason)
    try:
        graph_pp.fill(job, folder / "fill", places)
    except graph_pp.RefusedError as error:
        return WAYS, dict.fromkeys(GRAPH_PP_WAYS, str(error))
    return {**WAYS, **GRAPH_PP_WAYS}, {}


def _build_many(
    folder: Path, console: Console, *, repeat: int, layers: int
) -> build_sharing.Builds:
    """Build the same layers for pipelines of several lengths, and print the table."""

    def done(repetition: int, name: str, made: build_sharing.Build) -> None:
        turn = f"repetition {repetition + 1} of {repeat}"
        console.print(f"{turn}, {name}, {layers} layers: {made.seconds:.1f} s")

    builds = build_sharing.measure(folder, layers=layers, repeat=repeat, done=done)
    console.print(build_sharing.table(builds))
    return builds


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.warm_start", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--repeat", type=at_least(1), default=5, help="repetitions (5)")
    parser.add_argument("--degree", type=int, default=4, choices=(1, 2, 4), help="stages (4)")
    parser.add_argument("--shard", type=int, default=1, choices=(1, 2, 4), help="FSDP ranks (1)")
    parser.add_argument(
        "--schedule", default="Interleaved1F1B", help="of a pipeline (Interleaved1F1B)"
    )
    parser.add_argument("--steps", type=at_least(2), default=6, help="training steps (6)")
    parser.add_argument(
        "--layers", type=int, default=16, choices=(0, *build_sharing.LAYERS), help="layers (16)"
    )
    parser.add_argument("--front-end", default="stage", choices=FRONT_ENDS, help="(stage)")
    parser.add_argument("--module", help="of the configuration; the front end's debug model")
    parser.add_argument("--config")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write samples and ratios")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
