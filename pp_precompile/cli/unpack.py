"""``pp-precompile unpack STORE FILE``: put a packed build into a store."""

from collections.abc import Sequence
from pathlib import Path

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.output import print_json
from pp_precompile.store.keys import read_public
from pp_precompile.store.location import store_location
from pp_precompile.store.pack import unpack
from pp_precompile.store.store import open_store


def run(argv: Sequence[str]) -> int:
    """Unpack a build into ``STORE``, which is made if it is not there; returns 0."""
    parser = Parser("unpack", "Put a packed build into a store, checking all of it.")
    parser.add_argument("file", metavar="FILE", help="what 'pp-precompile pack' wrote")
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    paths = parsed.options.trusted_keys
    keys = read_public(paths) if paths else None
    store = open_store(store_location(parsed.options.store), create=True, trusted=keys)
    manifest = unpack(Path(parsed.options.file), store)
    if parsed.options.json:
        head = {"schema": "pp_precompile.unpack/1", "store": store.place}
        print_json({**head, "build": manifest.build_id})
    else:
        print(f"build {manifest.build_id} is in {store.place}")
    return 0
