"""``pp-precompile diff STORE A B``: every key factor and program in which two builds differ."""

from collections.abc import Sequence

from pp_precompile.cli.arguments import Parser, parse
from pp_precompile.cli.output import SHORT, print_json, print_table, table
from pp_precompile.graph.diff import program_differences
from pp_precompile.graph.nearest import differences


def run(argv: Sequence[str]) -> int:
    """Compare two builds; returns 0 whether they differ or not."""
    parser = Parser("diff", "Compare two builds of a store.")
    parser.add_argument("a", metavar="A", help="first digits of a build's id")
    parser.add_argument("b", metavar="B", help="first digits of another build's id")
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store = parsed.store()
    a, b = (store.builds.read(store.builds.resolve(parsed.options.__dict__[x])) for x in "ab")
    factors = differences(a.factors, b.factors)
    programs = list(program_differences(a, b))
    if parsed.options.json:
        print_json(
            {
                "schema": "pp_precompile.diff/1",
                "a": a.build_id,
                "b": b.build_id,
                "factors": [
                    {"factor": item.factor, "a": item.stored, "b": item.asked} for item in factors
                ],
                "programs": programs,
            }
        )
        return 0
    names = (a.build_id[:SHORT], b.build_id[:SHORT])
    out = table("factor", *names, title=f"{len(factors)} factors differ")
    for item in factors:
        out.add_row(item.factor, _text(item.stored), _text(item.asked))
    print_table(out)
    if not programs:
        print("all programs are the same")
        return 0
    out = table("stage", "program", *names, "", title=f"{len(programs)} programs differ")
    for program in programs:
        keys = (_text(program.key_a)[:SHORT], _text(program.key_b)[:SHORT])
        why = "another program" if program.traced else "other bytes or names"
        out.add_row(str(program.stage), program.program, *keys, why)
    print_table(out)
    return 0


def _text(value: str | None) -> str:
    return "none" if value is None else value
