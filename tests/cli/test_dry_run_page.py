"""docs/dry-run.md names every field of the JSON document, and no other."""

import re

from pp_precompile.cli.dry_run import document
from pp_precompile.graph.plan import BuildPlan, PlannedProgram, PlannedStage, plan_of
from tests.graph.builds import PP4
from tests.pages import DOCS, quoted, table


def test_the_page_has_the_fields_of_the_document() -> None:
    rows = table("dry-run.md", "field", "meaning")
    fields = [name for cell in rows for name in quoted(cell)]
    assert fields == list(document(plan_of(PP4), None, published=False))


def test_the_page_has_the_fields_of_builds_stages_and_programs() -> None:
    text = (DOCS / "dry-run.md").read_text(encoding="utf-8")
    [build, stage, program] = re.findall(
        r"(?:build|stage|program) has (`.*?)(?:\.|;|:) ", f"{text} ", re.S
    )
    assert tuple(quoted(build)) == BuildPlan.__struct_fields__
    assert tuple(quoted(stage)) == PlannedStage.__struct_fields__
    assert tuple(quoted(program)) == PlannedProgram.__struct_fields__
