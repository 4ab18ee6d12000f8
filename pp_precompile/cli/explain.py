"""``pp-precompile explain STORE``: what a build's key is made of, and what keeps a job from it."""

import sys
from collections.abc import Iterator, Mapping, Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.choose import only
from pp_precompile.cli.output import SHORT, print_findings, print_json, print_table, table
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.finding import from_error
from pp_precompile.graph.nearest import Nearest, differences, nearest
from pp_precompile.store.store import Store


def run(argv: Sequence[str]) -> int:
    """Explain a build's key, or what differs between a job and the build nearest to it."""
    parser = Parser("explain", "List the key factors of a build or job.", job=True)
    parser.add_argument("--build", metavar="ID", help="first digits of a build's id")
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store = parsed.store()
    request = parsed.request()
    if request is None:
        manifest = store.builds.read(only(store, parsed.options.build))
        _print(manifest.build_id, manifest.factors, None, as_json=parsed.options.json)
        return 0
    if parsed.options.build is None:
        near = nearest(request.factors, readable(store))
    else:
        manifest = store.builds.read(store.builds.resolve(parsed.options.build))
        found = differences(manifest.factors, request.factors)
        near = Nearest(build=manifest.build_id, differs=found)
    _print(request.build_id, request.factors, near, as_json=parsed.options.json, job=True)
    return 0


def readable(store: Store) -> Iterator[Manifest]:
    """Yield the builds of ``store`` that can be read; say on stderr which cannot."""
    for build in store.builds.ids():
        try:
            yield store.builds.read(build)
        except PrecompileError as error:
            print_findings([from_error(error)], f"build {build[:SHORT]}")


def print_differences(near: Nearest) -> None:
    """Print the factors in which the nearest build differs from the job, as a table."""
    title = f"{len(near.differs)} factors differ from build {near.build[:SHORT]}"
    out = table("factor", "stored", "asked for", title=title)
    for item in near.differs:
        out.add_row(item.factor, _text(item.stored), _text(item.asked))
    print_table(out)


def _print(
    build: Digest,
    factors: Mapping[str, str],
    near: Nearest | None,
    *,
    as_json: bool,
    job: bool = False,
) -> None:
    if as_json:
        document = {"schema": "pp_precompile.explain/1", "build": build, "factors": factors}
        print_json(document | {"nearest": near})
        return
    if near is not None and not near.differs:
        print(f"the store holds build {near.build}, which this job asks for")
    elif near is not None:
        print_differences(near)
    elif job:
        print("the store holds no build to compare with", file=sys.stderr)
    if near is None or not near.differs:
        out = table("factor", "value", title=f"{len(factors)} key factors of build {build}")
        for name in sorted(factors):
            out.add_row(name, factors[name])
        print_table(out)


def _text(value: str | None) -> str:
    return "none" if value is None else value
