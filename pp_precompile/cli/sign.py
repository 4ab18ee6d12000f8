"""``pp-precompile sign STORE --key FILE``: say that builds are yours, or reviewed by you."""

from collections.abc import Sequence
from pathlib import Path

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.choose import all_or_one
from pp_precompile.cli.output import SHORT, print_json
from pp_precompile.store.keys import read_private


def run(argv: Sequence[str]) -> int:
    """Sign builds after checking their manifests; returns 0, or raises a ``PrecompileError``."""
    parser = Parser("sign", "Sign builds; the signatures of other keys stay.")
    parser.add_argument("--key", metavar="FILE", required=True, help="a private key")
    parser.add_argument("--build", metavar="ID", help="first digits of a build's id; else all")
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store, key = parsed.store(), read_private(Path(parsed.options.key))
    builds = all_or_one(store, parsed.options.build)
    for build in builds:
        store.builds.signatures.add(build, store.builds.raw(build), key)
    if parsed.options.json:
        head = {"schema": "pp_precompile.sign/1", "store": store.place}
        print_json({**head, "key": key.public.id, "builds": builds})
    else:
        for build in builds:
            print(f"build {build[:SHORT]} is signed by key {key.public.id[:SHORT]}")
    return 0
