"""``pp-precompile compare STORE A B…``: builds and schedule files side by side, to choose from."""

from collections.abc import Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.choose import only
from pp_precompile.cli.explain import readable
from pp_precompile.cli.output import SHORT, print_json, print_table, size, table
from pp_precompile.cli.timing import takes_times, time_text, times_of
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.schedule_file import open_schedule_file
from pp_precompile.graph.compare import Candidate, Line, compared, of_build, of_file
from pp_precompile.store.store import Store


def run(argv: Sequence[str]) -> int:
    """Compare; returns 0, also where a schedule needs programs that are missing."""
    parser = Parser(
        "compare",
        "Put builds side by side, and schedules from files for the stages of a build.",
        epilog="A name that ends in .csv is a schedule file; it is put to the stages of --build, "
        "or of the first build named, or of the only one.",
    )
    parser.add_argument("names", metavar="A", nargs="+", help="a build's id, or a schedule file")
    parser.add_argument("--build", metavar="ID", help="the build whose stages files are put to")
    takes_times(parser)
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    times = times_of(parsed)
    found = _candidates(parsed.store(), parsed.options.names, parsed.options.build)
    lines = [compared(candidate, times) for candidate in found]
    if parsed.options.json:
        print_json({"schema": "pp_precompile.compare/1", "lines": lines})
    else:
        _print(lines)
    return 0


def _candidates(store: Store, names: Sequence[str], base: str | None) -> list[Candidate]:
    files = {
        name: open_schedule_file(name, hint="check the path") for name in names if _is_file(name)
    }
    builds = {
        name: store.builds.read(store.builds.resolve(name)) for name in names if name not in files
    }
    found = {name: of_build(f"build {m.build_id[:SHORT]}", m) for name, m in builds.items()}
    if files:
        under = _base(store, builds, base)
        others = list(readable(store))
        found |= {name: of_file(name, file, under, others) for name, file in files.items()}
    return [found[name] for name in names]


def _is_file(name: str) -> bool:
    return name.endswith(".csv")


def _base(store: Store, builds: dict[str, Manifest], base: str | None) -> Manifest:
    if base is None and builds:
        return next(iter(builds.values()))
    return store.builds.read(only(store, base))


def _print(lines: Sequence[Line]) -> None:
    out = table(
        "",
        "schedule",
        "ranks",
        "microbatches",
        "step",
        "bubble",
        "parameter bytes",
        "activation bytes, peak",
        "with gathered",
        "load bytes",
        "programs",
    )
    for line in lines:
        out.add_row(
            line.name,
            line.schedule,
            f"{line.ranks} with {line.stages} stages",
            str(line.microbatches),
            time_text(line.step, line.unit),
            f"{line.bubble:.1%}",
            size(line.parameter_bytes),
            _size(line.activation_bytes, line),
            _size(line.peak_bytes, line),
            _size(line.load_bytes, line, exact=True),
            str(line.programs),
        )
    print_table(out)
    print("bytes are those of the rank that needs most")
    for line in lines:
        if line.missing:
            print(f"{line.name}: not in the store: {', '.join(line.missing)}")


def _size(count: int | None, line: Line, *, exact: bool = False) -> str:
    if count is None:
        return "not known"
    return f"{'≥ ' if line.at_least and not exact else ''}{size(count)}"
