"""``pp-precompile build --dry-run``: what a build would compile, and what it would reuse."""

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from pp_precompile.cli.output import SHORT, print_json, print_table, size, table
from pp_precompile.graph.plan import BuildPlan, PlannedProgram, PlannedStage
from pp_precompile.store.location import store_location
from pp_precompile.store.store import existing_store


def dry_run(argv: Sequence[str], *, as_json: bool) -> int:
    """Trace the job of ``argv`` and print the plan; returns 0, or raises a ``PrecompileError``."""
    from pp_precompile.titan import cpu_platform

    if cpu_platform.needed():
        cpu_platform.enable()
    from pp_precompile.titan.arguments import parse
    from pp_precompile.titan.offline import Listener
    from pp_precompile.titan.plan import plan

    config = parse(argv)
    location = store_location(
        config.compile.precompile_artifact_dir, dump_folder=config.dump_folder
    )
    # Before tracing, which can take minutes: a store that cannot be read is an error.
    store = existing_store(location)
    planned = plan(config, Listener(traced=_traced()))
    if store is not None:
        programs = store.programs
        planned = planned.against(lambda key: programs.find(key) is not None)
    published = store is not None and planned.build in store.builds.ids()
    if as_json:
        print_json(document(planned, None if store is None else location, published))
    else:
        print_plan(planned)
        _print_store(location, store is not None, published)
    return 0


def document(plan: BuildPlan, store: str | None, published: bool) -> dict[str, object]:
    """Return the JSON document; docs/dry-run.md describes it."""
    return {
        "schema": "pp_precompile.plan/1",
        "store": None if store is None else str(store),
        "published": published,
        "programs": len(plan.programs),
        "distinct": len(plan.keys()),
        "compile": len(plan.keys("compile")),
        "stored": len(plan.keys("store")),
        "plan": plan,
    }


def print_plan(plan: BuildPlan) -> None:
    """Print the job, its stages and their programs as tables, and a line with their number."""
    facts = table("build", plan.build)
    facts.add_row("device", plan.device)
    facts.add_row("mesh", f"{plan.mesh} = {plan.ranks} ranks")
    facts.add_row("schedule", plan.schedule)
    facts.add_row("microbatches", f"{plan.microbatches} of {plan.microbatch_size}")
    print_table(facts)
    stages = table(
        "stage",
        "pp rank",
        "modules",
        "takes",
        "returns",
        "parameter bytes",
        "saved bytes",
        "in flight",
    )
    for stage in plan.stages:
        stages.add_row(
            str(stage.stage),
            str(stage.pp_rank),
            " ".join(shortened(stage.modules)),
            ", ".join(_takes(stage)),
            ", ".join(map(str, stage.outputs)),
            size(stage.parameter_bytes),
            size(stage.saved_bytes),
            str(stage.in_flight),
        )
    print_table(stages)
    programs = table("stage", "program", "key", "inputs", "outputs", "")
    for stage in plan.stages:
        for item in stage.programs:
            programs.add_row(str(stage.stage), *_cells(item))
    print_table(programs)
    print(
        f"{len(plan.programs)} programs, {len(plan.keys())} distinct: "
        f"{len(plan.keys('compile'))} to compile, {len(plan.keys('store'))} in the store"
    )


def _takes(stage: PlannedStage) -> list[str]:
    keywords = (f"{item.name}={item.tensor}" for item in stage.keywords)
    return [*(str(item.tensor) for item in stage.arguments), *keywords]


def shortened(modules: Iterable[str]) -> list[str]:
    """Return module names with each run of consecutive layers as ``layers.1-layers.8``."""
    names: list[str] = []
    for _, run in itertools.groupby(enumerate(modules), _run_of):
        first, *rest = (name for _, name in run)
        names.append(f"{first}-{rest[-1]}" if rest else first)
    return names


def _run_of(item: tuple[int, str]) -> tuple[str, int]:
    """Return what names of one run have in common: their prefix, and number less position."""
    position, name = item
    prefix, _, last = name.rpartition(".")
    return (prefix, int(last) - position) if last.isdecimal() else (name, 0)


def _cells(program: PlannedProgram) -> tuple[str, str, str, str, str]:
    origin = {"compile": "compile", "build": "as above", "store": "in the store"}[program.source]
    counts = str(program.inputs), str(program.outputs)
    return program.role, program.key[:SHORT], *counts, origin


def _print_store(location: str, exists: bool, published: bool) -> None:
    if published:
        text = "holds this build"
    elif exists:
        text = "does not hold this build"
    else:
        text = "does not exist yet"
    print(f"the store {location} {text}")


def _traced() -> Callable[[int, int], None]:
    """Return a listener that says on stderr how long each stage took."""
    last = time.perf_counter()

    def report(stage: int, programs: int) -> None:
        nonlocal last
        start, last = last, time.perf_counter()
        print(f"stage {stage}: {programs} programs, {last - start:.1f} s", file=sys.stderr)

    return report
