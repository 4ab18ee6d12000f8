"""docs/plan.md names every field of the documents, and its example of times is one."""

import re

import pytest

from pp_precompile.cli.plan import SCHEMA, document
from pp_precompile.graph.compare import Line
from pp_precompile.graph.runnable import simulated
from pp_precompile.graph.step_plan import RankPlan, StagePlan, StepPlan, plan_step
from pp_precompile.graph.times import MAX_SECONDS, UNIT_TIMES, read_times
from pp_precompile.plot.schedule import MAX_ACTIONS
from tests.graph.builds import PP4
from tests.pages import DOCS, quoted, table

PAGE = (DOCS / "plan.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("step", StepPlan.__struct_fields__),
        ("rank", RankPlan.__struct_fields__),
        ("stage", StagePlan.__struct_fields__),
        ("line", Line.__struct_fields__),
    ],
)
def test_the_page_has_the_fields_of(word: str, fields: tuple[str, ...]) -> None:
    plain = re.sub(r"\([^()]*\)", "", PAGE.replace("\n", " "))
    [text] = re.findall(rf"(?:A|The) {word} has (`.*?)(?:\.|;) ", plain)
    assert tuple(quoted(text)) == fields


def test_the_document_is_the_step_s_fields_and_a_schema() -> None:
    plan = plan_step(PP4, simulated(PP4.schedule, what="a build"), UNIT_TIMES)
    assert list(document(plan)) == ["schema", *StepPlan.__struct_fields__]
    assert f"`{SCHEMA}`" in PAGE


def test_the_example_of_times_can_be_read() -> None:
    [example] = re.findall(r"```json\n(.*?)```", PAGE, re.S)
    times = read_times([("the page", example.encode())])
    assert (times.of(3, "F"), times.of(0, "B"), times.communication) == (0.014, 0.021, 0.0005)


def test_the_limits_are_those_of_the_code() -> None:
    assert f"from 0 to {MAX_SECONDS:.0f}" in PAGE
    assert f"at most {MAX_ACTIONS} actions" in PAGE


def test_kinds_of_pictures_are_those_of_the_command() -> None:
    from pp_precompile.cli.plot import KINDS

    rows = table("plan.md", "`--kind`", "shows")
    assert {quoted(cell)[0] for cell in rows} == set(KINDS)
