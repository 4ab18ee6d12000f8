"""``pp-precompile pull STORE SOURCE``: copy builds from a remote store, or from another folder."""

from collections.abc import Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.copying import add_options, run_copy
from pp_precompile.store.keys import read_public
from pp_precompile.store.location import store_location
from pp_precompile.store.store import open_store


def run(argv: Sequence[str]) -> int:
    """Copy into ``STORE``, which is made if it is not there; returns 0."""
    parser = Parser("pull", "Copy builds from a remote store; a copy that broke off goes on.")
    parser.add_argument("source", metavar="SOURCE", help="an fsspec URL, or a folder")
    parser.takes_trusted_keys()
    add_options(parser)
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    paths = parsed.options.trusted_keys
    keys = read_public(paths) if paths else None
    source = open_store(store_location(parsed.options.source), create=False, trusted=keys)
    target = open_store(store_location(parsed.options.store), create=True)
    return run_copy(parsed, source, target)
