"""``pp-precompile ls STORE``: the builds of a store, one line each."""

from collections.abc import Sequence

import msgspec

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.output import SHORT, print_findings, print_json, print_table, size, table
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.finding import Finding, from_error


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What ``ls`` tells of a build; ``bytes`` counts each distinct blob once."""

    build: Digest
    schedule: str
    mesh: str
    ranks: int
    stages: int
    microbatches: int
    programs: int
    blobs: int
    bytes: int
    torch: str
    device: str
    capability: str


def run(argv: Sequence[str]) -> int:
    """List the builds; returns 1 if one of them is damaged, else 0."""
    parser = Parser("ls", "List the builds of a store.")
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store = parsed.store()
    lines: list[Line] = []
    damaged: dict[Digest, Finding] = {}
    for build in store.builds.ids():
        try:
            lines.append(_line(store.builds.read(build)))
        except PrecompileError as error:
            damaged[build] = from_error(error)
    if parsed.options.json:
        broken = [{"build": build, "finding": finding} for build, finding in damaged.items()]
        print_json({"schema": "pp_precompile.ls/1", "builds": lines, "damaged": broken})
    else:
        _print(lines)
    for build, finding in damaged.items():
        print_findings([finding], f"build {build[:SHORT]}")
    return 1 if damaged else 0


def _line(manifest: Manifest) -> Line:
    blobs = manifest.blobs()
    return Line(
        build=manifest.build_id,
        schedule=manifest.schedule.name,
        mesh=str(manifest.mesh),
        ranks=manifest.mesh.world_size,
        stages=len(manifest.stages),
        microbatches=manifest.schedule.microbatches,
        programs=sum(len(stage.all_programs) for stage in manifest.stages),
        blobs=len(blobs),
        bytes=sum(ref.size for ref in blobs.values()),
        torch=manifest.environment.torch,
        device=manifest.environment.device.type,
        capability=manifest.environment.device.capability,
    )


def _print(lines: Sequence[Line]) -> None:
    out = table("build", "schedule", "mesh", "stages", "programs", "bytes", "torch", "device")
    for line in lines:
        out.add_row(
            line.build[:SHORT],
            f"{line.schedule}, {line.microbatches} microbatches",
            line.mesh,
            str(line.stages),
            f"{line.programs} ({line.blobs} distinct)",
            size(line.bytes),
            line.torch,
            f"{line.device} {line.capability}",
        )
    print_table(out)
