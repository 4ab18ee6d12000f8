"""``pp-precompile plan STORE``: what a step of a build costs, before anything is loaded."""

from collections.abc import Sequence

import msgspec

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.choose import built
from pp_precompile.cli.output import SHORT, print_json, print_table, size, table
from pp_precompile.cli.timing import takes_times, time_text, times_of
from pp_precompile.graph.runnable import simulated
from pp_precompile.graph.step_plan import Columns, RankPlan, StagePlan, StepPlan, plan_step

SCHEMA = "pp_precompile.step_plan/1"


def run(argv: Sequence[str]) -> int:
    """Print the plan; returns 0, or raises a ``PrecompileError``."""
    parser = Parser("plan", "Tell what each rank holds, waits and loads in a step.")
    parser.add_argument("--build", metavar="ID", help="first digits of a build's id")
    parser.add_argument(
        "--rank",
        metavar="R",
        type=int,
        help="plan for the pipeline of this global rank only, of several variants",
    )
    takes_times(parser)
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    manifest = built(parsed.store(), parsed.options.build, rank=parsed.options.rank)
    times = times_of(parsed)
    what = f"the schedule of build {manifest.build_id[:SHORT]}"
    simulation = simulated(manifest.schedule, times, what=what)
    plan = plan_step(manifest, simulation, times)
    if parsed.options.json:
        print_json(document(plan))
    else:
        print_plan(plan)
    return 0


def document(plan: StepPlan) -> dict[str, object]:
    """Return the JSON document; docs/plan.md describes it."""
    fields: dict[str, object] = msgspec.to_builtins(plan)
    return {"schema": SCHEMA, **fields}


def print_plan(plan: StepPlan) -> None:
    """Print the step, its ranks and its stages as tables."""
    facts = table("build", plan.build)
    facts.add_row("mesh", f"{plan.mesh} = {plan.world_size} ranks")
    file = f" beside the file {plan.csv[:SHORT]}" if plan.csv else ""
    facts.add_row("schedule", f"{plan.schedule}{file}")
    facts.add_row("microbatches", f"{plan.microbatches} of {plan.microbatch_size}")
    facts.add_row("step", time_text(plan.step, plan.unit))
    facts.add_row("bubble", f"{plan.bubble:.1%} of the ranks' time")
    print_table(facts)
    _print_ranks(plan)
    _print_stages(plan)
    if any(rank.at_least for rank in plan.ranks):
        eager = "what modules keep that run eagerly, or a program that is a whole step"
        print(f"≥: sizes that depend on data, and {eager}, are left out")


def _print_ranks(plan: StepPlan) -> None:
    out = table(
        "pp rank",
        "stages",
        "parameter bytes",
        "gradient bytes",
        "activation bytes, peak",
        "after",
        "gathered bytes, peak",
        "both, peak",
        "load bytes",
        "waits",
    )
    for rank in plan.ranks:
        out.add_row(
            _place(rank.pp_rank, rank.columns),
            ", ".join(map(str, rank.stages)),
            size(rank.parameter_bytes),
            size(rank.gradient_bytes),
            _size(rank.activation_bytes, rank),
            rank.peak_action,
            size(rank.gathered_bytes),
            _size(rank.peak_bytes, rank),
            f"{size(rank.load_bytes)} ({rank.blobs} blobs)",
            f"{rank.waiting / plan.step:.1%}",
        )
    print_table(out)


def _print_stages(plan: StepPlan) -> None:
    out = table(
        "stage",
        "pp rank",
        "parameter bytes",
        "gradient bytes",
        "saved bytes",
        "of the loss",
        "kept for W",
        "gathered bytes",
        "in flight",
    )
    for stage in plan.stages:
        kept = "" if stage.kept_bytes is None else _size(stage.kept_bytes, stage)
        out.add_row(
            str(stage.stage),
            _place(stage.pp_rank, stage.columns),
            size(stage.parameter_bytes),
            size(stage.gradient_bytes),
            _size(stage.saved_bytes, stage),
            size(stage.loss_bytes),
            kept,
            size(stage.gathered_bytes),
            str(stage.in_flight),
        )
    print_table(out)


def _place(pp_rank: int, columns: Columns) -> str:
    """Name the ranks: those of a variant with the columns of the mesh that it is for."""
    return f"{pp_rank}, columns {', '.join(map(str, columns))}" if columns else str(pp_rank)


def _size(count: int, of: RankPlan | StagePlan) -> str:
    return f"{'≥ ' if of.at_least else ''}{size(count)}"
