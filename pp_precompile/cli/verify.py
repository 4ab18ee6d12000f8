"""``pp-precompile verify STORE --trusted-keys FILE…``: which builds a trusted key signed."""

from collections.abc import Sequence

import msgspec

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.choose import all_or_one
from pp_precompile.cli.output import SHORT, print_findings, print_json
from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.graph.finding import Finding, from_error
from pp_precompile.store.keys import read_public
from pp_precompile.store.signatures import signer


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What ``verify`` says of a build; ``key`` is the first trusted one that signed it."""

    build: Digest
    key: Digest | None
    finding: Finding | None


def run(argv: Sequence[str]) -> int:
    """Verify signatures, not blobs; returns 1 if a build is not signed by a trusted key."""
    parser = Parser("verify", "Check that builds are signed by a trusted key.")
    parser.takes_trusted_keys(required=True)
    parser.add_argument("--build", metavar="ID", help="first digits of a build's id; else all")
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store, keys = parsed.store(), read_public(parsed.options.trusted_keys)
    lines = []
    for build in all_or_one(store, parsed.options.build):
        try:
            manifest = store.builds.raw(build)
        except PrecompileError as error:
            lines.append(Line(build=build, key=None, finding=from_error(error)))
            continue
        key = signer(keys, digest_bytes(manifest), store.builds.signatures.of(build))
        lines.append(Line(build=build, key=key.id if key else None, finding=None))
    if parsed.options.json:
        head = {"schema": "pp_precompile.verify/1", "store": store.place}
        print_json({**head, "builds": lines})
    for line in lines:
        if line.finding is not None:
            print_findings([line.finding], f"build {line.build[:SHORT]}")
        elif not parsed.options.json:
            print(f"build {line.build[:SHORT]} is signed by key {(line.key or '')[:SHORT]}")
    return 1 if any(line.finding for line in lines) else 0
