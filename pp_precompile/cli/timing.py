"""The option ``--times`` of the commands that simulate a step, and how they print times."""

from pathlib import Path

from pp_precompile.cli.arguments import Parsed, Parser
from pp_precompile.contract.errors import UsageError
from pp_precompile.graph.times import MAX_FILE_BYTES, UNIT_TIMES, Times, read_times


def takes_times(parser: Parser) -> None:
    """Add ``--times``, which :func:`times_of` reads."""
    parser.add_argument(
        "--times",
        metavar="FILE",
        nargs="+",
        help="JSON with the seconds that actions take; without it, units",
    )


def times_of(parsed: Parsed) -> Times:
    """Return the times that the command was given, or units.

    Raises:
        UsageError: PPC007 for a file that cannot be read, or holds no times.
    """
    if parsed.options.times is None:
        return UNIT_TIMES
    return read_times((f"the file {name}", _bytes(name)) for name in parsed.options.times)


def _bytes(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "PPC007",
            f"the file {name} cannot be read",
            expected="a file of times",
            found=error.strerror,
            hint="check the path; docs/plan.md says who writes such files",
        ) from error


def time_text(time: float, unit: str) -> str:
    """Return a time with its unit: ``33 units``, ``0.412 s``."""
    return f"{time:.4g} units" if unit == "unit" else f"{time:.3g} s"
