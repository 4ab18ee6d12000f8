"""``pp-precompile push STORE TARGET``: copy builds to a remote store, or to another folder."""

from collections.abc import Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.copying import add_options, run_copy
from pp_precompile.store.location import store_location
from pp_precompile.store.store import open_store


def run(argv: Sequence[str]) -> int:
    """Copy from ``STORE``; returns 0, or raises a ``PrecompileError``."""
    parser = Parser("push", "Copy builds to a remote store; what is there is not sent again.")
    parser.add_argument("target", metavar="TARGET", help="an fsspec URL, or a folder")
    add_options(parser)
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read what TARGET has already, and replace what is damaged",
    )
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    source = parsed.store()
    target = open_store(store_location(parsed.options.target), create=True)
    return run_copy(parsed, source, target, verify=parsed.options.verify)
