"""Arrows between the boxes of a grid: straight to a neighbour, else around those in between."""

from collections.abc import Iterable, Mapping
from typing import Any

from pp_precompile.graph.dependency import Node
from pp_precompile.plot.grid import BOX_HEIGHT, BOX_WIDTH, VALUE_HEIGHT, VALUE_WIDTH, Spot
from pp_precompile.plot.palette import EDGE

_HALF = {
    "program": (BOX_WIDTH / 2, BOX_HEIGHT / 2),
    "value": (VALUE_WIDTH / 2, VALUE_HEIGHT / 2),
}
"""Half the width and height of a node in inches."""

_LANES = {"unsharded": -0.8, "saved": 0.78}
"""Where, beside the middle of a column, lines from a value pass by what is below it."""

_LANE = 0.9
"""The same for lines from programs."""

_TO_GRADIENTS, _FROM_GRADIENTS = -0.94, 1.02
"""The same for gradients that leave a column and that come into it."""

_ASIDE = 0.13
"""How far below a program's middle a line to or from a lane meets it, beside the straight ones."""

_NEAR = 0.9
"""Inches between rows that are next to each other, at most."""


def draw_arrows(axes: Any, spots: Mapping[Node, Spot], edges: Iterable[tuple[Node, Node]]) -> None:
    """Draw an arrow for each edge; ``spots`` are the middles of all nodes."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    for start, end in edges:
        axes.add_patch(
            FancyArrowPatch(
                path=Path(_route(start, end, spots)),
                arrowstyle="-|>,head_length=3.4,head_width=1.7",
                color=EDGE,
                linewidth=0.9,
                shrinkA=0,
                shrinkB=0,
                zorder=2,
            )
        )


def _route(start: Node, end: Node, spots: Mapping[Node, Spot]) -> list[Spot]:
    """Return the corners of an arrow's line."""
    (x0, y0), (x1, y1) = spots[start], spots[end]
    (w0, h0), (w1, h1) = _HALF[start[0]], _HALF[end[0]]
    if x0 != x1:
        side = 1 if x1 > x0 else -1
        first, last = (x0 + side * w0, y0), (x1 - side * w1, y1)
        if y0 == y1:
            return [first, last]
        # Gradients go from row to row next to the column of the program.
        turn = x0 + _TO_GRADIENTS if start[0] == "program" else x1 + _FROM_GRADIENTS
        return [first, (turn, y0), (turn, y1), last]
    if abs(y1 - y0) < _NEAR or start[2] == "loss":
        side = 1 if y1 > y0 else -1
        return [(x0, y0 + side * h0), (x1, y1 - side * h1)]
    lane = x0 + _LANES.get(str(start[2]), _LANE)
    side = 1 if lane > x0 else -1
    y0 += _ASIDE if start[0] == "program" else 0
    y1 += _ASIDE if end[0] == "program" else 0
    return [(x0 + side * w0, y0), (lane, y0), (lane, y1), (x1 + side * w1, y1)]
