"""A forward that is a whole step: on a build of graph_trainer's step graph."""

from collections.abc import Callable

import pytest

from pp_precompile.contract.schedule import parse_actions
from pp_precompile.graph.check import check_build
from pp_precompile.graph.demand import demand
from pp_precompile.graph.finding import errors
from pp_precompile.graph.held import held
from pp_precompile.graph.loss import has_loss
from tests.graph.builds import PP4, Plain, edited, find, load, program, stage

STEP = load("llama3_fsdp2_graph_step")


def _add_backward(value: Plain) -> None:
    forward = program(value, 0, "forward")
    gradients = [v for v in forward["outputs"] if v["kind"] == "parameter_gradient"]
    stage(value, 0)["programs"]["backward"] = {**forward, "inputs": [], "outputs": gradients}


def _drop(value: Plain, side: str, kind: str) -> None:
    values = program(value, 0, "forward")[side]
    values[:] = [v for v in values if v["kind"] != kind]


EDITS: dict[str, tuple[Callable[[Plain], object], set[str]]] = {
    "a gradient less": (
        lambda v: program(v, 0, "forward")["outputs"].remove(
            find(v, 0, "forward", "outputs", "parameter_gradient")
        ),
        # Then a backward is left to do, and there is none.
        {"PPC507", "PPC105"},
    ),
    "a gradient of something else": (
        lambda v: find(v, 0, "forward", "outputs", "parameter_gradient").update(name="other"),
        {"PPC505", "PPC507", "PPC105"},
    ),
    "a backward beside it": (_add_backward, {"PPC504"}),
    # Then the scalar counts as a prediction, and the loss as a program that is not there.
    "no loss": (
        lambda v: _drop(v, "inputs", "loss_argument"),
        {"PPC504", "PPC105", "PPC531"},
    ),
    "a loss that is no scalar": (
        lambda v: (
            stage(v, 0)["outputs"][0].update(shape=[1], stride=[1]),
            find(v, 0, "forward", "outputs", "output")["tensor"].update(shape=[1], stride=[1]),
        ),
        {"PPC504"},
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_does_not_fit_is_found(name: str) -> None:
    edit, codes = EDITS[name]
    assert errors(check_build(STEP)) == []
    assert {f.code for f in errors(check_build(edited(edit, STEP)))} == codes


def test_in_a_pipeline_no_forward_returns_gradients() -> None:
    def edit(value: Plain) -> None:
        gradient = find(value, 0, "backward", "outputs", "parameter_gradient")
        program(value, 0, "forward")["outputs"].append(gradient)

    found = [f for f in errors(check_build(edited(edit, PP4))) if f.code == "PPC504"]
    assert {f.expected for f in found} == {
        "a pipeline of one stage",
        "a forward with the loss",
        "no backward",
    }


def test_nothing_is_left_for_a_backward_and_nothing_is_kept_for_it() -> None:
    assert not has_loss(STEP)
    assert demand(STEP.schedule, STEP.stages, loss=False) == [(0, "forward")]
    kinds = [a.kind for text in STEP.schedule.actions[0] for a in parse_actions(text)]
    assert kinds == ["F", "B"]
    assert STEP.stages[0].saved_bytes == 0
    # What is kept inside is not known.
    assert held(STEP.stages[0]).at_least
