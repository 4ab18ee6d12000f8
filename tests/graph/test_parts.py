"""Programs for the parts of a backward, and for gathering once a step: each fault is found."""

from collections.abc import Callable

import networkx as nx
import pytest

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ROLES
from pp_precompile.graph.check import check_build
from pp_precompile.graph.dependency import dependency_graph
from pp_precompile.graph.timetable import timetable
from tests.graph.builds import Plain, actions, edited, find, program, stage
from tests.manifests import make_schedule, make_sound
from tests.schedules import table

PARTS = make_sound(table("zb_h1_4x8.csv"))
"""Four stages on four ranks, every backward in two parts."""

BOTH = make_sound(table("zbv_zero_bubble_2x8.csv"))
"""Four stages on two ranks."""

WRITTEN = make_sound(table("dualpipev_4x8_comms.csv"), gather=True)
"""Eight stages on four ranks, with whole backwards as well, gathering, and all actions for it."""

GATHERED = make_sound(make_schedule(3, 3, 4), gather=True)
"""Three stages with whole backwards that gather, and a schedule that does not speak of it."""

Edit = Callable[[Plain], object]


def drop(index: int, role: str) -> Edit:
    return lambda v: stage(v, index)["programs"].pop(role)


def without(index: int, role: str, side: str, kind: str) -> Edit:
    return lambda v: program(v, index, role)[side].remove(find(v, index, role, side, kind))


def narrow(index: int, role: str, side: str, kind: str) -> Edit:
    return lambda v: find(v, index, role, side, kind)["tensor"].update(dtype="float16")


def rename(index: int, role: str, side: str, kind: str, name: str) -> Edit:
    return lambda v: find(v, index, role, side, kind).update(name=name)


def add(index: int, role: str, side: str, kind: str, like: tuple[str, str, str]) -> Edit:
    """Add a value of ``kind`` that is otherwise like one of the same stage."""
    return lambda v: program(v, index, role)[side].append(
        {**find(v, index, *like), "kind": kind},
    )


def all_of(*edits: Edit) -> Edit:
    return lambda v: [edit(v) for edit in edits]


def freeze(index: int) -> Edit:
    return lambda v: stage(v, index)["parameters"][0]["tensor"].update(requires_grad=False)


def not_written(value: Plain) -> None:
    """Leave the reduction of gradients to whoever runs the schedule."""
    for rank in range(4):
        texts = actions(value, rank)
        texts[:] = [text for text in texts if not text.endswith("REDUCE_GRAD")]


CASES: dict[str, tuple[Manifest, Edit, set[str], str]] = {
    # name: (build, change, exactly these codes, part of a finding's text)
    "no program for I": (
        PARTS,
        drop(1, "backward_input"),
        {"PPC105", "PPC502", "PPC503"},
        "a backward_input program, for 1I0, 1I1",
    ),
    "no program for W": (
        PARTS,
        drop(2, "backward_weight"),
        {"PPC105", "PPC503", "PPC507"},
        "a backward_weight program, for 2W0, 2W1",
    ),
    "no whole backward for B": (
        WRITTEN,
        drop(5, "backward"),
        {"PPC105"},
        "a backward program, for 5B1, ",
    ),
    "no whole backward in the first stage": (
        PARTS,
        drop(0, "backward"),
        {"PPC105", "PPC507"},
        "a backward program, for 0W0, 0W1",
    ),
    "saved for nobody": (
        PARTS,
        without(1, "backward_weight", "inputs", "saved"),
        {"PPC503"},
        "found:    no such value",
    ),
    "saved unlike for a part": (
        PARTS,
        narrow(1, "backward_weight", "inputs", "saved"),
        {"PPC503"},
        "stage 1, program backward_weight, field saved 0",
    ),
    "deferred for nobody": (
        PARTS,
        without(1, "backward_weight", "inputs", "deferred"),
        {"PPC503"},
        "disagree on deferred value 0",
    ),
    "taken but not deferred": (
        PARTS,
        without(1, "backward_input", "outputs", "deferred"),
        {"PPC503"},
        "expected: no such value",
    ),
    "deferred unlike": (
        PARTS,
        narrow(1, "backward_input", "outputs", "deferred"),
        {"PPC503"},
        "disagree on deferred value 0",
    ),
    "no gradient from I": (
        PARTS,
        without(2, "backward_input", "outputs", "argument_gradient"),
        {"PPC502"},
        "stage 2, program backward_input, field gradient 0",
    ),
    "a gradient from I that W should give": (
        PARTS,
        add(
            1, "backward_input", "outputs", "parameter_gradient", ("forward", "inputs", "parameter")
        ),
        {"PPC505"},
        "values of kind argument_gradient, deferred",
    ),
    "no gradient from W": (
        PARTS,
        without(3, "backward_weight", "outputs", "parameter_gradient"),
        {"PPC507"},
        "parameter layers.3.weight of stage 3 has no right gradient",
    ),
    "no gradient from W beside a whole backward that gives it": (
        WRITTEN,
        without(5, "backward_weight", "outputs", "unsharded_gradient"),
        {"PPC503", "PPC507"},
        "a gradient that only reduce_grad has",
    ),
    "a frozen weight where parts are built": (
        PARTS,
        freeze(2),
        {"PPC105", "PPC507"},
        "a backward program, for 2I0, 2I1",
    ),
    "the loss's gradient in no part": (
        PARTS,
        without(3, "backward_input", "inputs", "tangent"),
        {"PPC504"},
        "gradient 0",
    ),
    "no program that gathers": (
        GATHERED,
        drop(1, "unshard"),
        {"PPC105", "PPC503"},
        "a unshard program, for 1F0, 1F1",
    ),
    "gathered for nobody": (
        GATHERED,
        add(1, "unshard", "outputs", "unsharded", ("unshard", "outputs", "unsharded")),
        {"PPC505"},
        "layers.1.weight twice",
    ),
    "taken but not gathered": (
        GATHERED,
        rename(1, "backward", "inputs", "unsharded", "layers.0.weight"),
        {"PPC503", "PPC505"},
        "one of layers.1.weight",
    ),
    "gathered unlike": (
        WRITTEN,
        narrow(3, "backward", "inputs", "unsharded"),
        {"PPC503"},
        "stage 3, program backward, field unsharded layers.3.weight",
    ),
    "gathered unlike for all": (
        WRITTEN,
        narrow(3, "unshard", "outputs", "unsharded"),
        {"PPC503"},
        "stage 3, program forward, field unsharded layers.3.weight",
    ),
    "no program that reduces, for the action that does": (
        WRITTEN,
        drop(2, "reduce_grad"),
        {"PPC105", "PPC503", "PPC507"},
        "a reduce_grad program, for 2REDUCE_GRAD",
    ),
    "no program that reduces, for the last weight gradient": (
        WRITTEN,
        all_of(drop(2, "reduce_grad"), not_written),
        {"PPC105", "PPC503", "PPC507"},
        "a reduce_grad program, for 2W7",
    ),
    "reduced unlike": (
        GATHERED,
        narrow(1, "reduce_grad", "inputs", "unsharded_gradient"),
        {"PPC503"},
        "disagree on unsharded_gradient value layers.1.weight",
    ),
    "reduced and not returned": (
        GATHERED,
        without(1, "reduce_grad", "outputs", "parameter_gradient"),
        {"PPC507"},
        "a gradient that reduce_grad does not return",
    ),
    "a gradient on two paths": (
        GATHERED,
        add(1, "backward", "outputs", "parameter_gradient", ("unshard", "inputs", "parameter")),
        {"PPC507"},
        "a gradient both directly and through reduce_grad",
    ),
    "a gradient of a frozen weight to reduce": (
        GATHERED,
        freeze(1),
        {"PPC507"},
        "expected: no gradient",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_change_is_found(name: str) -> None:
    manifest, edit, codes, text = CASES[name]
    findings = check_build(edited(edit, manifest))
    assert {finding.code for finding in findings} == codes
    assert text in "\n".join(map(str, findings))


@pytest.mark.parametrize("manifest", [PARTS, BOTH, WRITTEN, GATHERED])
def test_nothing_is_found_unchanged(manifest: Manifest) -> None:
    assert check_build(manifest) == []


def test_a_stage_has_only_the_programs_that_its_schedule_runs() -> None:
    assert sorted(PARTS.stages[0].programs) == ["backward", "forward"]
    assert sorted(PARTS.stages[1].programs) == ["backward_input", "backward_weight", "forward"]
    assert len(WRITTEN.stages[1].programs) == 6


def test_whole_and_in_parts_are_checked_against_each_other_at_a_boundary() -> None:
    def narrow_tangent(value: Plain) -> None:
        find(value, 1, "backward_input", "inputs", "tangent")["tensor"]["dtype"] = "float16"

    findings = check_build(edited(narrow_tangent, WRITTEN))
    places = {finding.where.program for finding in findings if finding.code == "PPC502"}
    assert places == {"backward", "backward_input"}


def test_the_graph_leads_through_the_parts() -> None:
    graph = dependency_graph(WRITTEN, timetable(WRITTEN.schedule))
    for path in (
        ["unshard", "unsharded", "forward", "saved", "backward_weight", "unsharded_gradient"],
        ["backward_input", "deferred", "backward_weight", "unsharded_gradient", "reduce_grad"],
        ["unshard", "unsharded", "backward_input"],
        ["backward", "unsharded_gradient", "reduce_grad"],
    ):
        nodes = [node(2, name) for name in path]
        assert nx.is_path(graph, nodes)
    assert nx.is_path(graph, [node(2, "backward_input"), node(2, "gradients"), node(1, "backward")])
    assert nx.is_path(graph, [node(7, "loss"), ("value", 7, "loss"), node(7, "backward_input")])
    assert nx.is_directed_acyclic_graph(graph)


def node(index: int, name: str) -> tuple[str, int, str]:
    return ("program" if name in ROLES else "value", index, name)


def test_the_first_stage_runs_its_whole_backward_at_w() -> None:
    graph = dependency_graph(PARTS, timetable(PARTS.schedule))
    texts = PARTS.schedule.actions[0]
    needing = {texts[position] for _, _, position in graph.successors(("program", 0, "backward"))}
    assert needing == {f"0W{mb}" for mb in range(8)}
