"""``pp-precompile pack STORE FILE``: one build as one file."""

from collections.abc import Sequence
from pathlib import Path

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.choose import only
from pp_precompile.cli.output import print_json, size
from pp_precompile.store.pack import pack


def run(argv: Sequence[str]) -> int:
    """Pack a build; returns 0, or raises a ``PrecompileError``."""
    parser = Parser("pack", "Write one build with all its programs to one file.")
    parser.add_argument("file", metavar="FILE", help="the file to write, a tar archive")
    parser.add_argument("--build", metavar="ID", help="first digits of a build's id")
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store = parsed.store()
    build = only(store, parsed.options.build)
    written = pack(store, build, Path(parsed.options.file))
    if parsed.options.json:
        head = {"schema": "pp_precompile.pack/1", "file": parsed.options.file}
        print_json({**head, "build": build, "bytes": written})
    else:
        print(f"build {build} in {parsed.options.file}, {size(written)} bytes")
    return 0
