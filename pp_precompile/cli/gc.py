"""``pp-precompile gc STORE``: delete builds that are not wanted, and what nothing needs."""

import argparse
import dataclasses
import math
from collections.abc import Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.output import SHORT, print_json, size
from pp_precompile.store.gc import GRACE_SECONDS, Keep, Swept, collect

_DAY = 86400.0
_HOUR = 3600.0

_EPILOG = """Without --newest and --days all builds stay, and only blobs that no build needs go.
A build counts as used when it is published, and when a job loads it from a folder it may write to.
A blob stays for the time of grace after its last use, so this is safe while jobs run and build."""


def run(argv: Sequence[str]) -> int:
    """Collect; returns 0, or raises a ``PrecompileError``."""
    parser = Parser("gc", "Delete builds, and the blobs that nothing needs.", epilog=_EPILOG)
    add = parser.add_argument
    add("--newest", metavar="N", type=_natural, help="keep the N builds that were used last")
    add("--days", metavar="D", type=_number, help="keep builds used within D days")
    add("--keep", metavar="ID", nargs="+", default=[], help="keep these builds")
    add("--grace-hours", metavar="H", type=_number, help="hours that unneeded blobs stay (24)")
    add("--dry-run", action="store_true", help="delete nothing, say what would go")
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store, options = parsed.store(), parsed.options
    keep = Keep(
        newest=options.newest,
        seconds=None if options.days is None else options.days * _DAY,
        builds={store.builds.resolve(prefix) for prefix in options.keep},
    )
    grace = GRACE_SECONDS if options.grace_hours is None else options.grace_hours * _HOUR
    swept = collect(store, keep, grace=grace, dry_run=options.dry_run)
    if options.json:
        document = {"schema": "pp_precompile.gc/1", "store": store.place}
        print_json({**document, "dry_run": options.dry_run, **dataclasses.asdict(swept)})
    else:
        _print(swept, dry_run=options.dry_run)
    return 0


def _print(swept: Swept, *, dry_run: bool) -> None:
    verb = "would delete" if dry_run else "deleted"
    for build in swept.builds:
        print(f"{verb} build {build[:SHORT]}")
    print(
        f"{verb} {len(swept.builds)} builds, {swept.entries} program entries, {swept.blobs} blobs "
        f"({size(swept.blob_bytes)} bytes), {swept.leftovers} leftover files "
        f"({size(swept.leftover_bytes)} bytes)"
    )
    if swept.waiting:
        print(
            f"{swept.waiting} more blobs that no build needs ({size(swept.waiting_bytes)} bytes) "
            f"stay for their time of grace"
        )


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of builds")
    return int(text)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time")
    return number
