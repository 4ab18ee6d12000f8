"""``pp-precompile pin STORE ID…``: keep builds whatever ``gc`` is told."""

from collections.abc import Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.output import print_json
from pp_precompile.store.pins import pin, pinned, unpin


def run(argv: Sequence[str]) -> int:
    """Pin builds, take pins away, or list them; returns 0."""
    parser = Parser("pin", "Keep builds from being deleted; without ID, list the pins.")
    parser.add_argument("builds", metavar="ID", nargs="*", help="first digits of a build's id")
    parser.add_argument("--remove", action="store_true", help="take the pins away")
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store = parsed.store()
    for prefix in parsed.options.builds:
        build = store.builds.resolve(prefix)
        if parsed.options.remove:
            unpin(store, build)
        else:
            pin(store, build)
    pins = sorted(pinned(store))
    if parsed.options.json:
        print_json({"schema": "pp_precompile.pin/1", "store": store.place, "pins": pins})
    else:
        print("\n".join(f"pinned {build}" for build in pins) or "no build is pinned")
    return 0
