"""The programs of a build and the values between them as a picture: one column for each stage.

The nodes and edges are those of :mod:`pp_precompile.graph.dependency`, without the actions.
:mod:`.grid` says where they stand.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import Kind, Role
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.dependency import Node, dependency_graph
from pp_precompile.graph.timetable import timetable
from pp_precompile.plot.arrows import draw_arrows
from pp_precompile.plot.canvas import Figure
from pp_precompile.plot.grid import (
    AGAIN,
    BOX_HEIGHT,
    BOX_WIDTH,
    LEFT,
    VALUE_HEIGHT,
    VALUE_WIDTH,
    Column,
    Grid,
    Spot,
    columns_of,
)
from pp_precompile.plot.palette import INK, OF_ROLE, tint

_TINT = 0.72
_DIGITS = 6
"""Digits of a key that a box shows."""


def draw_programs(figure: Figure, manifest: Manifest, name: str) -> None:
    """Draw the programs of ``manifest`` as one rank's column of the mesh has them.

    Args:
        figure: an empty one.
        manifest: without variants.
        name: of the schedule, for the heading.

    Raises:
        UsageError: PPC008 for more columns than a picture can show, and for stages of blocks.
    """
    _check_stages(manifest)
    grid = Grid(columns_of(manifest.stages))
    width, height = grid.size
    figure.set_size_inches(width, height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    draw_arrows(axes, grid.spots, _edges(manifest, grid))
    _draw_programs(axes, grid)
    _draw_values(axes, grid)
    _heading(axes, manifest, grid, name)


def _check_stages(manifest: Manifest) -> None:
    if any(stage.blocks is not None for stage in manifest.stages):
        raise UsageError(
            "PPC008",
            "this picture shows programs of whole stages",
            expected="stages that run by programs of their own",
            found="a build of the core front end, whose stages run by blocks",
            hint="'pp-precompile show' lists the programs; 'plot --kind schedule' draws the rest",
        )


def _edges(manifest: Manifest, grid: Grid) -> list[tuple[Node, Node]]:
    """Return the edges between nodes that are drawn, those inside a column only once."""
    nobody = tuple(() for _ in manifest.schedule.actions)
    silent = timetable(msgspec.structs.replace(manifest.schedule, actions=nobody))
    graph = dependency_graph(manifest, silent)
    standing = {s: column for column in grid.columns for s in column.stages}
    edges = {
        _in_band(_standing(start, standing), _standing(end, standing), grid.spots)
        for start, end in graph.edges
        # From one stage of a column to the next there is nothing to see.
        if start[1] == end[1] or standing[start[1]] is not standing[end[1]]
    }
    return sorted((e for e in edges if set(e) <= grid.spots.keys()), key=repr)


def _in_band(start: Node, end: Node, spots: Mapping[Node, Spot]) -> tuple[Node, Node]:
    """Return an edge with a value that stands twice where the edge's program is."""
    (one, i, name), (other, j, title) = start, end
    again: Node = (one, i, f"{name}{AGAIN}")
    if name == "outputs" and i != j and again in spots:
        return again, end
    again = (other, j, f"{title}{AGAIN}")
    if title == "gradients" and i == j and again in spots:
        return start, again
    return start, end


def _standing(node: Node, standing: Mapping[int, Column]) -> Node:
    """Return the node that stands for ``node``: that of the column's first stage.

    Outputs stand for the last stage of a column, from where they go on to the next.
    """
    kind, stage, name = node
    column = standing[stage]
    return kind, column.last if name == "outputs" else column.first.index, name


def _draw_programs(axes: Any, grid: Grid) -> None:
    from matplotlib.patches import FancyBboxPatch

    seen: dict[str, str] = {}
    for column in grid.columns:
        stage = column.first
        for role, program in stage.programs.items():
            x, y = grid.spots["program", stage.index, role]
            shared = seen.get(program.key)
            seen.setdefault(program.key, f"stage {stage.index}")
            axes.add_patch(
                FancyBboxPatch(
                    (x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2),
                    BOX_WIDTH,
                    BOX_HEIGHT,
                    boxstyle="round,pad=0,rounding_size=0.06",
                    facecolor=tint(OF_ROLE[role], _TINT),
                    edgecolor=OF_ROLE[role] if role != "loss" else "#8a8200",
                    linestyle="--" if shared else "-",
                    linewidth=1.2,
                    zorder=3,
                )
            )
            below = f"as in {shared}" if shared else program.key[:_DIGITS]
            _text(axes, x, y - 0.085, role, size=8.5)
            _text(axes, x, y + 0.115, f"{below}, {_bytes(program.blob.size)}", size=7)


def _draw_values(axes: Any, grid: Grid) -> None:
    from matplotlib.patches import FancyBboxPatch

    records = {s: column.first for column in grid.columns for s in column.stages}
    for (what, stage, name), (x, y) in grid.spots.items():
        if what != "value":
            continue
        axes.add_patch(
            FancyBboxPatch(
                (x - VALUE_WIDTH / 2, y - VALUE_HEIGHT / 2),
                VALUE_WIDTH,
                VALUE_HEIGHT,
                boxstyle=f"round,pad=0,rounding_size={VALUE_HEIGHT / 2}",
                facecolor="white",
                edgecolor="#9aa5ae",
                linewidth=0.8,
                zorder=3,
            )
        )
        title, size = _value(records[stage], str(name).removesuffix(AGAIN))
        _text(axes, x, y - 0.07, title, size=7.5)
        _text(axes, x, y + 0.085, _bytes(size), size=6.5)


_OF_VALUE: dict[str, tuple[str, Role | None, Kind]] = {
    # name: (title, program or any, kind of output)
    "unsharded": ("gathered", "unshard", "unsharded"),
    "outputs": ("outputs", "forward", "output"),
    "saved": ("saved", "forward", "saved"),
    "deferred": ("deferred", "backward_input", "deferred"),
    "gradients": ("gradients", None, "argument_gradient"),
    "loss": ("gradients", "loss", "argument_gradient"),
    "unsharded_gradient": ("to reduce", None, "unsharded_gradient"),
}


def _value(stage: StageRecord, name: str) -> tuple[str, int]:
    """Return what a value is called, and its bytes."""
    title, role, kind = _OF_VALUE[name]
    roles: list[str] = [role] if role else [r for r in stage.programs if r != "loss"]
    sizes = {
        value.name: value.tensor.nbytes
        for one in roles
        if one in stage.programs
        for value in stage.programs[one].outputs
        if value.kind == kind and value.alias is None and value.tensor is not None
    }
    return title, sum(sizes.values())


def _heading(axes: Any, manifest: Manifest, grid: Grid, name: str) -> None:
    programs = [p for stage in manifest.stages for p in stage.programs.values()]
    _text(
        axes,
        LEFT,
        0.25,
        f"{name}: {len(manifest.stages)} stages, {len(programs)} programs, "
        f"{len({program.key for program in programs})} different ones",
        size=10.5,
        ha="left",
    )
    note = "boxes: programs with their key and bytes, dashed if shared; round: values with bytes"
    _text(axes, LEFT, grid.size[1] - 0.2, note, size=7.5, ha="left")
    for position, column in enumerate(grid.columns):
        _text(axes, *grid.title(position), column.title, size=9.5)


def _text(axes: Any, x: float, y: float, text: str, *, size: float, ha: str = "center") -> None:
    axes.text(x, y, text, size=size, color=INK, ha=ha, va="center", zorder=4)


def _bytes(count: int) -> str:
    for factor, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.3g} {name}"
    return f"{count} B"
