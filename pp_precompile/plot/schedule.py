"""A schedule as a picture: one row for each rank, one box for each action, over time."""

import statistics
from collections.abc import Iterator
from typing import Any

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.schedule import Action
from pp_precompile.graph.bubble import bubble_of
from pp_precompile.graph.simulate import Simulation
from pp_precompile.graph.timetable import COMPUTE
from pp_precompile.plot.canvas import Figure
from pp_precompile.plot.palette import INK, OF_KIND, WAITING, shades, text_on

MAX_ACTIONS = 40_000
"""Most boxes of a picture: more of them cannot be told apart, and fill gigabytes."""

_ROW, _FILLED = 0.36, 0.84
"""Inches from row to row, and which part of it a box fills."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 0.75, 0.15, 0.6, 0.5
"""Margins in inches."""

_ROOMY, _TIGHT, _NARROWEST, _WIDEST = 0.3, 0.15, 8.0, 60.0
"""Inches for one short action if there are few and if there are many; of the whole picture."""

_COMFORTABLE = 12.0
"""Inches up to which actions get all the room they like."""

_LARGEST, _SMALLEST = 9.0, 5.5
"""Points of a microbatch's number; a smaller one is left out."""

_WIDTH_OF_DIGIT, _AIR = 0.64, 1.5
"""Width of a digit in ems, and points left free beside a number."""

_NAMES = {"F": "forward", "B": "backward", "I": "backward, inputs", "W": "backward, weights"}

Axes = Any


def draw_schedule(figure: Figure, simulation: Simulation, name: str, unit: str) -> None:
    """Draw a simulated step.

    Args:
        figure: an empty one.
        simulation: the step.
        name: of the schedule, for the heading.
        unit: of its times.

    Raises:
        UsageError: PPC008 for more than :data:`MAX_ACTIONS` actions.
    """
    check_drawable(simulation)
    ranks = len(simulation.table.ranks)
    width = _width(simulation)
    height = _TOP + ranks * _ROW + _BOTTOM
    figure.set_size_inches(_LEFT + width + _RIGHT, height)
    axes = figure.add_axes(
        (
            _LEFT / (_LEFT + width + _RIGHT),
            _BOTTOM / height,
            width / (_LEFT + width + _RIGHT),
            ranks * _ROW / height,
        )
    )
    colours = _colours(simulation)
    points = 72 * width / simulation.step
    for rank in range(ranks):
        _row(axes, simulation, rank, colours, points)
    axes.set_xlim(0, simulation.step)
    axes.set_ylim(ranks - 0.5, -0.5)
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.set_xlabel("time (units)" if unit == "unit" else "time (s)")
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    _heading(figure, axes, simulation, name, height)


def check_drawable(simulation: Simulation) -> None:
    """Refuse a step with more actions than a picture can show, with PPC008."""
    count = sum(map(len, simulation.table.ranks))
    if count > MAX_ACTIONS:
        raise UsageError(
            "PPC008",
            "the schedule has too many actions for a picture",
            expected=f"at most {MAX_ACTIONS}",
            found=count,
            hint="write a .json and open it in a trace viewer",
        )


def _width(simulation: Simulation) -> float:
    """Return the inches that time gets, so that numbers fit into boxes of usual length."""
    shortest = simulation.step / max(1.0, _short_actions(simulation))
    count = simulation.step / shortest
    wanted = max(min(count * _ROOMY, _COMFORTABLE), count * _TIGHT)
    return min(_WIDEST, max(_NARROWEST, wanted))


def _short_actions(simulation: Simulation) -> float:
    """Return how many of the shortest kind of action, at its median, fit into the step."""
    lengths: dict[str, list[float]] = {}
    for action, start, end in _boxes(simulation):
        if end > start:
            lengths.setdefault(action.kind, []).append(end - start)
    return simulation.step / min(map(statistics.median, lengths.values()))


def _boxes(simulation: Simulation) -> Iterator[tuple[Action, float, float]]:
    for rank, actions in enumerate(simulation.table.ranks):
        yield from zip(actions, simulation.starts[rank], simulation.ends[rank], strict=True)


def _colours(simulation: Simulation) -> dict[tuple[int, str], str]:
    """Return colours by stage and kind: a rank's later stages are lighter."""
    held = simulation.table.schedule.stages_of_rank
    most = max(map(len, held))
    return {
        (stage, kind): shades(OF_KIND[kind], most)[place]
        for stages in held
        for place, stage in enumerate(stages)
        for kind in COMPUTE
    }


def _row(
    axes: Axes,
    simulation: Simulation,
    rank: int,
    colours: dict[tuple[int, str], str],
    points: float,
) -> None:
    """Draw the boxes of a rank; one of length 1 is ``points`` points long."""
    actions = simulation.table.ranks[rank]
    starts, ends = simulation.starts[rank], simulation.ends[rank]
    axes.broken_barh([(0, simulation.step)], (rank - _FILLED / 2, _FILLED), facecolors=WAITING)
    axes.broken_barh(
        [(start, end - start) for start, end in zip(starts, ends, strict=True)],
        (rank - _FILLED / 2, _FILLED),
        facecolors=[colours[action.stage, action.kind] for action in actions],
        edgecolors="white",
        linewidth=0.4,
    )
    for action, start, end in zip(actions, starts, ends, strict=True):
        text = str(action.microbatch)
        size = ((end - start) * points - _AIR) / (_WIDTH_OF_DIGIT * len(text))
        if size >= _SMALLEST:
            axes.text(
                (start + end) / 2,
                rank,
                text,
                size=min(size, _LARGEST),
                color=text_on(colours[action.stage, action.kind]),
                ha="center",
                va="center_baseline",
            )


def _heading(figure: Figure, axes: Axes, simulation: Simulation, name: str, height: float) -> None:
    """Write above the rows what they are, and below that what the colours mean."""
    from matplotlib.patches import Patch

    schedule = simulation.table.schedule
    bubble = float(bubble_of(simulation))
    ranks = len(schedule.stages_of_rank)
    figure.text(
        _LEFT / figure.get_figwidth(),
        1 - 0.14 / height,
        f"{name}: {ranks} ranks, {schedule.stages} stages, {schedule.microbatches} microbatches; "
        f"bubble {bubble:.1%}",
        size=10.5,
        color=INK,
        va="top",
    )
    kinds = {action.kind for actions in simulation.table.ranks for action in actions}
    keys = [Patch(facecolor=OF_KIND[kind], label=_NAMES[kind]) for kind in COMPUTE if kind in kinds]
    keys.append(Patch(facecolor=WAITING, label="waits"))
    if max(map(len, schedule.stages_of_rank)) > 1:
        lighter = shades(OF_KIND["F"], 2)[1]
        keys.append(Patch(facecolor=lighter, label="lighter: a rank's later stages"))
    axes.legend(
        handles=keys,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        bbox_transform=axes.transAxes,
        ncols=len(keys),
        frameon=False,
        borderaxespad=0.1,
        borderpad=0.1,
        handlelength=1.1,
        handletextpad=0.4,
        columnspacing=1.2,
        fontsize=8.5,
    )
