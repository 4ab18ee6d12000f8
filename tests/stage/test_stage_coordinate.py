"""A rank's coordinate while tracing: arithmetic, comparisons, and what is refused."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pp_precompile.contract.errors import CompileError
from pp_precompile.stage.coordinate import Coordinate

SIZE = 4


def on_rank(rank: int) -> Coordinate:
    """The coordinate as it is when a program runs on ``rank``."""
    return Coordinate(lambda: torch.tensor(rank), SIZE)


@pytest.mark.parametrize("rank", range(SIZE))
def test_tensors_meet_the_value_of_the_rank(rank: int) -> None:
    x = torch.arange(20)
    offset = on_rank(rank) * 5
    assert torch.equal(x >= offset, x >= rank * 5)
    assert torch.equal(x - offset, x - rank * 5)
    assert torch.equal(x < 3 + offset + 2, x < rank * 5 + 5)
    assert torch.equal(torch.add(x, 2 * on_rank(rank) - 1), x + 2 * rank - 1)


def test_bounds_that_hold_for_all_ranks_are_numbers() -> None:
    start = on_rank(0) * 5
    assert min(20, start) is start
    end = min(20, start + 5)
    assert end - start == 5
    assert max(0, end - start) == 5


@pytest.mark.parametrize(
    "use",
    [
        bool,
        int,
        lambda c: c == 0,
        lambda c: c < 2,
        lambda c: c * 1.5,
        lambda c: c - c * 2,
        lambda c: [0, 1, 2, 3][c],
    ],
    ids=["branch", "number", "equality", "another side for some", "fraction", "unlike", "index"],
)
def test_what_differs_between_ranks_is_refused(use: Callable[[Any], object]) -> None:
    with pytest.raises(CompileError) as raised:
        use(on_rank(0))
    assert raised.value.code == "PPC304"


def test_operators_are_those_of_integers() -> None:
    for op in (operator.add, operator.mul):
        for left, right in ((on_rank(3), 2), (2, on_rank(3))):
            assert torch.equal(torch.tensor(0) + op(left, right), torch.tensor(op(3, 2)))
