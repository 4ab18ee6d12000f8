"""Overlap programs, and a loss inside the last forward: on a build of torchtitan's GraphPP."""

from collections.abc import Callable

import pytest

from pp_precompile.graph.check import check_build
from pp_precompile.graph.finding import errors
from pp_precompile.graph.loss import has_loss
from pp_precompile.graph.overlap import overlapped
from tests.graph.builds import DUALPIPEV, Plain, edited, find, load, program, stage

GRAPH_PP = load("llama3_pp2_graph_pp_dualpipev")


def _swap(values: list[Plain]) -> None:
    values[0], values[1] = values[1], values[0]


def _loss_in_the_middle(value: Plain) -> None:
    taken = find(value, 3, "forward", "inputs", "loss_argument")
    program(value, 1, "forward")["inputs"].append(taken)


EDITS: dict[str, tuple[Callable[[Plain], object], set[str]]] = {
    "no overlap": (lambda v: stage(v, 0)["programs"].pop("overlap"), {"PPC105"}),
    "another order": (lambda v: _swap(program(v, 0, "overlap")["inputs"]), {"PPC503"}),
    "one output less": (lambda v: program(v, 0, "overlap")["outputs"].pop(), {"PPC503"}),
    "parts that changed": (
        lambda v: find(v, 1, "overlap", "inputs", "parameter").update(name="layers.0.other"),
        {"PPC503"},
    ),
    "a vector for a loss": (
        lambda v: (
            stage(v, 3)["outputs"][0].update(shape=[1], stride=[1]),
            find(v, 3, "forward", "outputs", "output")["tensor"].update(shape=[1], stride=[1]),
            find(v, 3, "overlap", "outputs", "output")["tensor"].update(shape=[1], stride=[1]),
        ),
        {"PPC504"},
    ),
    "a loss in the middle": (_loss_in_the_middle, {"PPC504", "PPC503"}),
    "a saved value that nobody makes": (
        lambda v: find(v, 0, "backward", "inputs", "saved").update(name="99"),
        {"PPC503"},
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_does_not_fit_is_found(name: str) -> None:
    edit, codes = EDITS[name]
    assert errors(check_build(GRAPH_PP)) == []
    assert {f.code for f in errors(check_build(edited(edit, GRAPH_PP)))} == codes


def test_who_overlaps_whom_is_in_the_schedule() -> None:
    assert overlapped(GRAPH_PP.schedule) == {0: [3], 1: [2], 2: [1], 3: [0]}


def test_a_loss_in_the_forward_is_no_program() -> None:
    assert GRAPH_PP.stages[3].returns_loss
    assert not has_loss(GRAPH_PP)
    # The same schedule with a loss program needs no overlap programs.
    assert has_loss(DUALPIPEV)
    assert overlapped(DUALPIPEV.schedule) == overlapped(GRAPH_PP.schedule)
    assert errors(check_build(DUALPIPEV)) == []
