"""What ranks hold over a step as a picture: one panel a rank, all with the same scales."""

from collections.abc import Mapping, Sequence
from typing import Any

from pp_precompile.graph.held import Held
from pp_precompile.graph.memory import Level, levels, peaks
from pp_precompile.graph.simulate import Simulation
from pp_precompile.plot.canvas import Figure
from pp_precompile.plot.palette import ACTIVATIONS, GATHERED, INK, tint
from pp_precompile.plot.schedule import check_drawable

MAX_PANELS = 64
"""Most ranks that are drawn; of more, these with the highest peaks."""

_IN_ONE_COLUMN = 6
_PANEL_WIDTH, _PANEL_HEIGHT = 4.6, 0.95
"""Inches of a panel; a single column is twice as wide."""

_GAP_WIDTH, _GAP_HEIGHT = 0.35, 0.34
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.8, 0.15, 0.5, 0.5

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))

Curve = Sequence[tuple[float, Level]]
"""Times with the level that a rank has from then on."""


def curve(simulation: Simulation, rank: int, held: Mapping[int, Held]) -> list[tuple[float, Level]]:
    """Return what ``rank`` holds over a step: each level from the end of its action on.

    Raises:
        StaleBuildError: PPC105 for a backward in parts of a stage without programs for it.
    """
    ends = simulation.ends[rank]
    found = levels(simulation.table.ranks[rank], held, simulation.table.schedule.microbatches)
    return [(0.0, Level(0, 0, 0)), *((ends[level.position], level) for level in found)]


def draw_memory(
    figure: Figure, simulation: Simulation, held: Mapping[int, Held], name: str, unit: str
) -> None:
    """Draw what each rank holds.

    Args:
        figure: an empty one.
        simulation: the step.
        held: what stages hold.
        name: of the schedule, for the heading.
        unit: of its times.

    Raises:
        StaleBuildError: PPC105 for a backward in parts of a stage without programs for it.
        UsageError: PPC008 for more actions than a picture can show.
    """
    check_drawable(simulation)
    curves = [curve(simulation, r, held) for r in range(len(simulation.table.ranks))]
    shown = _shown([max(level.both for _, level in one) for one in curves])
    highest = max(level.both for one in curves for _, level in one) or 1
    factor, bytes_name = next((f, text) for f, text in _UNITS if highest >= f or f == 1.0)
    panels = _panels(figure, len(shown))
    for panel, rank in zip(panels, shown, strict=True):
        _area(panel, curves[rank], simulation.step, factor)
        panel.set_xlim(0, simulation.step)
        panel.set_ylim(0, 1.08 * highest / factor)
        _title(panel, simulation, rank, held, factor, bytes_name)
    panels[0].figure.supylabel(f"held ({bytes_name})", x=0.1 / figure.get_figwidth(), size=9)
    panels[0].figure.supxlabel(
        "time (units)" if unit == "unit" else "time (s)", y=0.08 / figure.get_figheight(), size=9
    )
    _heading(figure, curves, simulation, name, len(shown))


def _shown(highest: Sequence[float]) -> list[int]:
    by_height = sorted(range(len(highest)), key=lambda rank: (-highest[rank], rank))
    return sorted(by_height[:MAX_PANELS])


def _panels(figure: Figure, count: int) -> list[Any]:
    """Return ``count`` axes in columns that are read downwards."""
    columns = 1 if count <= _IN_ONE_COLUMN else 2 if count <= 4 * _IN_ONE_COLUMN else 4
    rows = -(-count // columns)
    panel_width = 2 * _PANEL_WIDTH if columns == 1 else _PANEL_WIDTH
    width = _LEFT + columns * panel_width + (columns - 1) * _GAP_WIDTH + _RIGHT
    height = _TOP + rows * (_PANEL_HEIGHT + _GAP_HEIGHT) + _BOTTOM
    figure.set_size_inches(width, height)
    panels = []
    for index in range(count):
        column, row = divmod(index, rows)
        left = _LEFT + column * (panel_width + _GAP_WIDTH)
        top = _TOP + row * (_PANEL_HEIGHT + _GAP_HEIGHT) + _GAP_HEIGHT
        bottom = height - top - _PANEL_HEIGHT
        box = (left / width, bottom / height, panel_width / width, _PANEL_HEIGHT / height)
        panel = figure.add_axes(box)
        lowest = row == rows - 1 or index == count - 1
        panel.tick_params(labelbottom=lowest, labelleft=column == 0, length=2, labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#dddddd", linewidth=0.5)
        panel.set_axisbelow(True)
        panels.append(panel)
    return panels


def _area(panel: Any, found: Curve, step: float, factor: float) -> None:
    times = [time for time, _ in found] + [step]
    steps = [level for _, level in found]
    steps.append(steps[-1])
    activations = [level.activations / factor for level in steps]
    both = [level.both / factor for level in steps]
    style = {"step": "post", "linewidth": 0.8}
    panel.fill_between(
        times, activations, facecolor=tint(ACTIVATIONS, 0.45), edgecolor=ACTIVATIONS, **style
    )
    if any(level.gathered for level in steps):
        panel.fill_between(
            times, activations, both, facecolor=tint(GATHERED, 0.35), edgecolor=GATHERED, **style
        )


def _title(
    panel: Any,
    simulation: Simulation,
    rank: int,
    held: Mapping[int, Held],
    factor: float,
    bytes_name: str,
) -> None:
    actions = simulation.table.ranks[rank]
    top = peaks(actions, held, simulation.table.schedule.microbatches).activations
    stages = simulation.table.schedule.stages_of_rank[rank]
    word = "stage" if len(stages) == 1 else "stages"
    after = f" after {actions[top.position]}" if top.activations else ""
    panel.set_title(
        f"rank {rank}, {word} {', '.join(map(str, stages))}: activations at most "
        f"{top.activations / factor:.3g} {bytes_name}{after}",
        loc="left",
        size=8.5,
        color=INK,
        pad=3,
    )


def _heading(
    figure: Figure, curves: Sequence[Curve], simulation: Simulation, name: str, shown: int
) -> None:
    from matplotlib.patches import Patch

    height, ranks = figure.get_figheight(), len(curves)
    schedule = simulation.table.schedule
    some = "" if shown == ranks else f" (the {shown} that hold most)"
    left = _LEFT / figure.get_figwidth()
    figure.text(
        left,
        1 - 0.14 / height,
        f"{name}: {ranks} ranks{some}, {schedule.microbatches} microbatches",
        size=10.5,
        color=INK,
        va="top",
    )
    keys = [Patch(facecolor=tint(ACTIVATIONS, 0.45), label="activations of microbatches under way")]
    if any(level.gathered for one in curves for _, level in one):
        label = "gathered parameters, gradients to reduce"
        keys.append(Patch(facecolor=tint(GATHERED, 0.35), label=label))
    figure.legend(
        handles=keys,
        loc="upper left",
        bbox_to_anchor=(left, 1 - 0.36 / height),
        ncols=len(keys),
        frameon=False,
        borderaxespad=0,
        borderpad=0,
        handlelength=1.1,
        fontsize=8.5,
    )
