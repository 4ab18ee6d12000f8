"""``pp-precompile fsck STORE``: read everything in a store, and say what cannot be relied on."""

from collections.abc import Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.output import bar, print_findings, print_json, size
from pp_precompile.store.fsck import Health, check_store


def run(argv: Sequence[str]) -> int:
    """Check a store; returns 0 if it is sound, 1 if something in it is not."""
    description = "Check every digest and every reference of a store; changes nothing."
    parser = Parser("fsck", description)
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store = parsed.store()
    with bar("blobs") as advance:
        health = check_store(store, advance)
    if parsed.options.json:
        print_json({"schema": "pp_precompile.fsck/1", "store": store.place, **_plain(health)})
    else:
        print(
            f"{health.builds} builds, {health.entries} program entries, {health.blobs} blobs, "
            f"{size(health.bytes)} bytes; nothing needs {health.orphans} of the blobs "
            f"({size(health.orphan_bytes)} bytes); {health.leftovers} leftover files"
        )
        print("sound" if health.sound else f"{len(health.findings)} faults")
    print_findings(health.findings, "store")
    return 0 if health.sound else 1


def _plain(health: Health) -> dict[str, object]:
    names = ("sound", "builds", "entries", "blobs", "bytes", "orphans", "orphan_bytes")
    return {name: getattr(health, name) for name in (*names, "leftovers", "findings")}
