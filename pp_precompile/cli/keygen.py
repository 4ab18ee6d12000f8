"""``pp-precompile keygen FILE``: make a pair of keys to sign builds with."""

from collections.abc import Sequence
from pathlib import Path

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.output import print_json
from pp_precompile.store.keys import generate


def run(argv: Sequence[str]) -> int:
    """Make a key pair; returns 0, or raises a ``PrecompileError`` if a file is there already."""
    description = "Make an Ed25519 key: FILE signs builds, FILE.pub is given to jobs."
    parser = Parser("keygen", description, operand="FILE", about="the private key's file")
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    path = Path(parsed.options.operand)
    public = generate(path)
    if parsed.options.json:
        files = {"private": str(path), "public": f"{path}.pub"}
        print_json({"schema": "pp_precompile.keygen/1", "key": public.id, **files})
    else:
        print(f"key {public.id}\nsigns: {path} (keep it secret)\nchecks: {path}.pub")
    return 0
