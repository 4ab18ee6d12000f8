"""What ``push`` and ``pull`` have in common: builds go from one store to another."""

import argparse
import dataclasses
from collections.abc import Sequence

from pp_precompile.cli.arguments import Parsed, Parser
from pp_precompile.cli.choose import all_or_one
from pp_precompile.cli.output import SHORT, bar, print_json, size
from pp_precompile.contract.digest import Digest
from pp_precompile.store.store import Store
from pp_precompile.store.transfer import JOBS, copy


def add_options(parser: Parser) -> None:
    """Add the options of both commands."""
    parser.add_argument(
        "--build", metavar="ID", action="append", help="first digits of a build's id; else all"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=_positive, default=JOBS, help=f"blobs at a time ({JOBS})"
    )


def run_copy(parsed: Parsed, source: Store, target: Store, *, verify: bool = False) -> int:
    """Copy the chosen builds and say what was sent; returns 0."""
    builds = _chosen(source, parsed.options.build)
    with bar("bytes") as advance:
        copied = copy(
            source, target, builds, jobs=parsed.options.jobs, verify=verify, progress=advance
        )
    if parsed.options.json:
        head = {"schema": "pp_precompile.copy/1", "from": source.place, "to": target.place}
        print_json({**head, **dataclasses.asdict(copied)})
        return 0
    for build in copied.builds:
        print(f"build {build[:SHORT]} is in {target.place}")
    print(
        f"{copied.blobs} blobs, {size(copied.blob_bytes)} bytes; sent {copied.sent}, "
        f"{size(copied.sent_bytes)} bytes, the others were there"
    )
    return 0


def _chosen(source: Store, prefixes: Sequence[str] | None) -> list[Digest]:
    if not prefixes:
        return all_or_one(source, None)
    return [source.builds.resolve(prefix) for prefix in prefixes]


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of blobs")
    return int(text)
