"""``pp-precompile du STORE``: how much space builds take, and what deleting one gives back."""

import datetime
from collections.abc import Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.output import SHORT, print_findings, print_json, print_table, size, table
from pp_precompile.contract.digest import Digest
from pp_precompile.store.pins import pinned
from pp_precompile.store.references import references
from pp_precompile.store.usage import Usage, usage


def run(argv: Sequence[str]) -> int:
    """Count; returns 1 if a build could not be read and so is not counted, else 0."""
    parsed = parse(Parser("du", "Count the bytes of a store, by build."), argv)
    if parsed is None:
        return 0
    store = parsed.store()
    known = references(store)
    found = usage(store, known)
    pins = pinned(store)
    if parsed.options.json:
        head = {"schema": "pp_precompile.du/1", "store": store.place}
        print_json({**head, "total_bytes": found.total_bytes, "usage": found, "pins": sorted(pins)})
    else:
        _print(found, pins)
    print_findings(known.findings, "store")
    return 1 if known.findings else 0


def _print(found: Usage, pins: set[Digest]) -> None:
    out = table("build", "last used", "bytes", "own bytes", "")
    for one in found.builds:
        used = datetime.datetime.fromtimestamp(one.used).astimezone()
        pin = "pinned" if one.build in pins else ""
        when = used.isoformat(sep=" ", timespec="minutes")
        out.add_row(one.build[:SHORT], when, size(one.bytes), size(one.own_bytes), pin)
    print_table(out)
    print(
        f"{size(found.total_bytes)} bytes in all: {found.blobs} blobs {size(found.blob_bytes)}, "
        f"of which no build needs {size(found.spare_bytes)}; manifests "
        f"{size(found.manifest_bytes)}, program entries {size(found.entry_bytes)}, records of "
        f"builds that went {size(found.freed_bytes)}, leftovers {size(found.leftover_bytes)}"
    )
