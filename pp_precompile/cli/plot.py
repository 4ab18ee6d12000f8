"""``pp-precompile plot STORE``: a build's schedule, programs or memory as a picture or trace."""

from collections.abc import Sequence
from pathlib import Path

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.choose import built
from pp_precompile.cli.output import SHORT, print_json
from pp_precompile.cli.timing import takes_times, times_of
from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.held import held
from pp_precompile.graph.runnable import simulated
from pp_precompile.graph.times import Times
from pp_precompile.plot import canvas
from pp_precompile.plot.memory import draw_memory
from pp_precompile.plot.programs import draw_programs
from pp_precompile.plot.schedule import draw_schedule
from pp_precompile.plot.trace import trace

KINDS = ("schedule", "graph", "memory")

_LONGEST_NAME = 40
"""Most characters of a schedule's name in a heading."""


def run(argv: Sequence[str]) -> int:
    """Write the picture; returns 0, or raises a ``PrecompileError``."""
    parser = Parser(
        "plot",
        "Draw a build's schedule, its graph of programs, or what its ranks hold over a step.",
        epilog="A .json of the schedule or memory is a trace for ui.perfetto.dev.",
    )
    parser.add_argument("--kind", choices=KINDS, default="schedule", help="schedule if not given")
    parser.add_argument(
        "--out", metavar="FILE", required=True, type=Path, help="a .svg, .png, .pdf or .json"
    )
    parser.add_argument("--build", metavar="ID", help="first digits of a build's id")
    parser.add_argument(
        "--rank",
        metavar="R",
        type=int,
        default=0,
        help="draw the pipeline of this global rank, of several variants",
    )
    takes_times(parser)
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    options = parsed.options
    _check_suffix(options.out, options.kind)
    manifest = built(parsed.store(), options.build, rank=options.rank)
    write(manifest, options.kind, options.out, times_of(parsed))
    if options.json:
        document = {"schema": "pp_precompile.plot/1", "build": manifest.build_id}
        print_json(document | {"kind": options.kind, "file": str(options.out)})
    else:
        print(f"{options.kind} of build {manifest.build_id[:SHORT]}: {options.out}")
    return 0


def write(manifest: Manifest, kind: str, path: Path, times: Times) -> None:
    """Write one picture, or a trace if ``path`` ends in ``.json``.

    Raises:
        PrecompileError: PPC008 if it cannot be drawn or written; PPC007 for times that do not
            fit; PPC105 or PPC521 to PPC527 for a schedule that cannot be simulated.
    """
    name, unit = manifest.schedule.name[:_LONGEST_NAME], times.unit
    if kind == "graph":
        canvas.save(lambda figure: draw_programs(figure, manifest, name), path)
        return
    what = f"the schedule of build {manifest.build_id[:SHORT]}"
    simulation = simulated(manifest.schedule, times, what=what)
    holds = {stage.index: held(stage) for stage in manifest.stages}
    if path.suffix == ".json":
        _write_text(
            path, trace(simulation, holds, unit=unit, actions=kind == "schedule", name=name)
        )
    elif kind == "schedule":
        canvas.save(lambda figure: draw_schedule(figure, simulation, name, unit), path)
    else:
        canvas.save(lambda figure: draw_memory(figure, simulation, holds, name, unit), path)


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise canvas.unwritable(path, error) from error


def _check_suffix(path: Path, kind: str) -> None:
    allowed = canvas.SUFFIXES if kind == "graph" else (*canvas.SUFFIXES, "json")
    if path.suffix.removeprefix(".") not in allowed:
        raise UsageError(
            "PPC008",
            f"no picture of kind {kind} can be written to {path}",
            expected="a file that ends in " + ", ".join(f".{suffix}" for suffix in allowed),
            found=path.suffix or "no suffix",
            hint="choose another --out",
        )
