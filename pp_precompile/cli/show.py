"""``pp-precompile show STORE``: one build, or one stage of it, in full."""

from collections.abc import Sequence

import msgspec

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.choose import built, check_below, view
from pp_precompile.cli.output import SHORT, print_json, print_table, size, table
from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ROLES, ProgramRecord, Value
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.bubble import bubble_fraction
from pp_precompile.graph.parts import grouped_programs


def run(argv: Sequence[str]) -> int:
    """Show a build; returns 0, or raises a ``PrecompileError``."""
    parser = Parser("show", "Show a build, or one stage with the calling conventions of programs.")
    parser.add_argument("--build", metavar="ID", help="first digits of a build's id")
    parser.add_argument("--stage", metavar="K", type=int, help="show this stage in full")
    parser.add_argument(
        "--rank",
        metavar="R",
        type=int,
        help="show what this global rank takes, of several variants",
    )
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    manifest = built(parsed.store(), parsed.options.build)
    manifest_id = manifest.manifest_id
    if parsed.options.rank is not None:
        manifest = view(manifest, parsed.options.rank)
    index = parsed.options.stage
    stage = None if index is None else _stage(manifest, index)
    if parsed.options.json:
        stages = manifest.stages if stage is None else (stage,)
        print_json(
            {
                "schema": "pp_precompile.show/1",
                "manifest_id": manifest_id,
                "saved_bytes": {str(one.index): one.saved_bytes for one in stages},
                "manifest": msgspec.structs.replace(manifest, stages=stages),
            }
        )
    elif stage is None:
        _print_build(manifest)
    else:
        _print_stage(stage)
    return 0


def _stage(manifest: Manifest, index: int) -> StageRecord:
    check_below(manifest, "stage", index, len(manifest.stages), Where(stage=index))
    return manifest.stages[index]


def _print_build(manifest: Manifest) -> None:
    environment, schedule = manifest.environment, manifest.schedule
    facts = table("build", manifest.build_id)
    facts.add_row("manifest", manifest.manifest_id)
    facts.add_row("mesh", f"{manifest.mesh} = {manifest.mesh.world_size} ranks")
    for variant in manifest.variants:
        columns = ", ".join(map(str, variant.columns))
        ranks = f"ranks that are {columns} modulo {manifest.mesh.columns}"
        facts.add_row("variant", f"{ranks} take other programs (--rank R shows them)")
    file = f" beside the file {schedule.csv[:SHORT]}" if schedule.csv else ""
    facts.add_row("schedule", f"{schedule.name}{file}")
    facts.add_row("bubble", _bubble(schedule))
    facts.add_row("microbatches", f"{schedule.microbatches} of {schedule.microbatch_size}")
    for name in ("torch", "torchtitan", "triton", "python", "platform", "libc", "pp_precompile"):
        facts.add_row(name, getattr(environment, name))
    device = environment.device
    facts.add_row("device", f"{device.type} {device.capability} ({device.name})")
    facts.add_row("key factors", f"{len(manifest.factors)} ('pp-precompile explain' lists them)")
    print_table(facts)
    stages = table("stage", "pp rank", "modules", "takes", "returns", "programs", "saved bytes")
    for stage in manifest.stages:
        stages.add_row(
            str(stage.index),
            str(schedule.owner(stage.index)),
            " ".join(stage.modules),
            ", ".join(str(item.tensor) for item in stage.arguments),
            ", ".join(map(str, stage.outputs)),
            ", ".join(f"{role} {size(p.blob.size)} B" for role, p in _programs(stage)),
            size(stage.saved_bytes),
        )
    print_table(stages)
    orders = table("pp rank", "stages", "actions")
    for rank, actions in enumerate(schedule.actions):
        held = ", ".join(map(str, schedule.stages_of_rank[rank]))
        orders.add_row(str(rank), held, " ".join(actions))
    print_table(orders)


def _bubble(schedule: ScheduleTable) -> str:
    try:
        return f"{float(bubble_fraction(schedule)):.1%} of the ranks' time, at unit times"
    except ValueError as error:
        # Other commands say what is wrong with it; this one shows what there is.
        return str(error)


def _print_stage(stage: StageRecord) -> None:
    boundary = table("boundary", "name", "tensor", "stride", title=f"stage {stage.index}")
    for part in ("arguments", "keywords", "parameters", "buffers"):
        for item in getattr(stage, part):
            stride = str(list(item.tensor.stride))
            boundary.add_row(part[:-1], item.name, str(item.tensor), stride)
    for position, tensor in enumerate(stage.outputs):
        boundary.add_row("output", str(position), str(tensor), str(list(tensor.stride)))
    print_table(boundary)
    for role, program in _programs(stage):
        _print_program(role, program)
    print(f"saved between forward and backward: {size(stage.saved_bytes)} bytes a microbatch")


def _programs(stage: StageRecord) -> list[tuple[str, ProgramRecord]]:
    if stage.blocks is not None:
        return grouped_programs(stage)
    return [(role, stage.programs[role]) for role in ROLES if role in stage.programs]


def _print_program(role: str, program: ProgramRecord) -> None:
    title = (
        f"{role}: key {program.key[:SHORT]}, blob {program.blob.digest[:SHORT]}, "
        f"{size(program.blob.size)} bytes, {program.kernels} kernels"
    )
    out = table("", "position", "kind", "name", "tensor", "stride", "bytes", title=title)
    for word, values in (("in", program.inputs), ("out", program.outputs)):
        for position, value in enumerate(values):
            out.add_row(word, str(position), value.kind, *_cells(value))
    print_table(out)


def _cells(value: Value) -> tuple[str, str, str, str]:
    name = f"{value.name} = {value.alias}" if value.alias else value.name
    if value.tensor is None:
        return name, "integer", "", ""
    tensor = value.tensor
    return name, str(tensor), str(list(tensor.stride)), "" if value.alias else size(tensor.nbytes)
