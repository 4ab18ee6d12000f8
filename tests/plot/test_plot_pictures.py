"""Pictures: equal bytes for equal builds, everything on the page, nothing under anything else."""

import itertools
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.held import held
from pp_precompile.graph.simulate import simulate
from pp_precompile.plot import canvas, grid
from pp_precompile.plot.memory import MAX_PANELS, draw_memory
from pp_precompile.plot.palette import OF_KIND, OF_ROLE, shades, text_on, tint
from pp_precompile.plot.programs import draw_programs
from pp_precompile.plot.schedule import draw_schedule
from tests.graph.builds import NAMES, PP4, load
from tests.manifests import make_sound
from tests.schedules import one_f_one_b, table

BUILDS: dict[str, Manifest] = {
    **{name: load(name) for name in NAMES},
    "16 x 64": make_sound(one_f_one_b(16, 64), gather=True),
    "ZBV 4 x 8": make_sound(table("zbv_zero_bubble_4x8.csv")),
    "DualPipeV 4 x 8": make_sound(table("dualpipev_4x8.csv"), gather=True),
    "one stage": make_sound(one_f_one_b(1, 1)),
}

KINDS = ("schedule", "graph", "memory")

OF_BLOCKS = "core_llama3_pp2"
"""A build whose stages run by blocks: its programs are no picture."""

PICTURES = [
    (kind, name) for kind in KINDS for name in BUILDS if (kind, name) != ("graph", OF_BLOCKS)
]


def draw(figure: Figure, kind: str, build: Manifest) -> None:
    name = build.schedule.name
    if kind == "graph":
        draw_programs(figure, build, name)
        return
    run = simulate(build.schedule)
    if kind == "schedule":
        draw_schedule(figure, run, name, "unit")
    else:
        draw_memory(figure, run, {s.index: held(s) for s in build.stages}, name, "unit")


def drawn(kind: str, build: Manifest) -> tuple[Figure, list[Text]]:
    """Return the figure, and every text that was drawn on it."""
    figure = Figure()
    canvas_of_figure = FigureCanvasAgg(figure)
    draw(figure, kind, build)
    texts: list[Text] = []
    original = Text.draw

    def noted(self: Text, *args: Any) -> None:
        if self.get_visible() and self.get_text().strip():
            texts.append(self)
        original(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", noted)
        canvas_of_figure.draw()
    return figure, texts


@pytest.mark.parametrize(("kind", "name"), PICTURES)
def test_every_text_is_on_the_page_and_on_no_other(kind: str, name: str) -> None:
    figure, texts = drawn(kind, BUILDS[name])
    width, height = figure.canvas.get_width_height()
    boxes = sorted(
        ((text.get_window_extent(), text.get_text()) for text in texts), key=lambda b: b[0].x0
    )
    assert len(boxes) > 3
    assert boxes[0][0].x0 >= 0, boxes[0]
    for position, (box, text) in enumerate(boxes):
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
        for other, behind in itertools.islice(boxes, position + 1, None):
            if other.x0 >= box.x1 - 1:
                break
            assert box.y1 <= other.y0 + 1 or other.y1 <= box.y0 + 1, (text, behind)


@pytest.mark.parametrize(("kind", "name"), PICTURES)
def test_no_text_is_tiny(kind: str, name: str) -> None:
    figure, texts = drawn(kind, BUILDS[name])
    assert min(text.get_size() for text in texts) >= 5.5
    assert max(figure.get_size_inches()) <= 65


def test_a_schedule_names_each_microbatch_in_its_box() -> None:
    _, texts = drawn("schedule", BUILDS["16 x 64"])
    numbers = [text.get_text() for text in texts if text.get_text() == "63"]
    assert len(numbers) == 2 * 16
    assert any("16 ranks, 16 stages, 64 microbatches; bubble 19.0%" in t.get_text() for t in texts)


def test_memory_tells_each_rank_s_peak() -> None:
    _, texts = drawn("memory", PP4)
    found = {text.get_text() for text in texts}
    peak = f"{3 * PP4.stages[1].saved_bytes / 1e6:.3g} MB"
    assert f"rank 1, stage 1: activations at most {peak} after 1F2" in found


def test_the_ranks_that_hold_most_are_drawn_if_there_are_too_many() -> None:
    figure, texts = drawn("memory", make_sound(one_f_one_b(MAX_PANELS + 8, 2)))
    assert len(figure.axes) == MAX_PANELS
    assert any(f"(the {MAX_PANELS} that hold most)" in text.get_text() for text in texts)


def test_neighbours_with_the_same_programs_share_a_column() -> None:
    columns = grid.columns_of(PP4.stages)
    assert [column.title for column in columns] == ["stage 0", "stages 1 to 2", "stage 3"]
    _, texts = drawn("graph", PP4)
    found = [text.get_text() for text in texts]
    assert [found.count(role) for role in ("forward", "backward", "loss")] == [3, 3, 1]
    assert "1F1B: 4 stages, 9 programs, 7 different ones" in found


def test_a_program_that_an_earlier_stage_has_is_dashed() -> None:
    apart = BUILDS["16 x 64"]
    stages = list(apart.stages)
    shared = stages[9].programs | {"forward": stages[2].programs["forward"]}
    stages[9] = msgspec.structs.replace(stages[9], programs=shared)
    figure, texts = drawn("graph", msgspec.structs.replace(apart, stages=tuple(stages)))
    assert sum(text.get_text().startswith("as in stage 2,") for text in texts) == 1
    dashed = [p for p in figure.axes[0].patches if p.get_linestyle() in ("--", "dashed")]
    assert len(dashed) == 1


def test_the_programs_of_blocks_are_no_picture() -> None:
    with pytest.raises(UsageError, match=r"PPC008.*whole stages"):
        drawn("graph", BUILDS[OF_BLOCKS])


def test_too_much_for_a_picture_is_refused() -> None:
    with pytest.raises(UsageError, match=r"PPC008.*too many actions") as caught:
        drawn("schedule", make_sound(one_f_one_b(8, 2_501)))
    assert ".json" in str(caught.value.hint)
    with pytest.raises(UsageError, match=r"PPC008.*too many stages"):
        grid.columns_of(make_sound(one_f_one_b(grid.MAX_COLUMNS + 1, 1)).stages)


@pytest.mark.parametrize("suffix", canvas.SUFFIXES)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_builds_give_equal_bytes(kind: str, suffix: str, tmp_path: Path) -> None:
    one, other = tmp_path / f"one.{suffix}", tmp_path / f"other.{suffix}"
    for path in (one, other):
        canvas.save(lambda figure: draw(figure, kind, PP4), path)
    assert one.read_bytes() == other.read_bytes()
    assert len(one.read_bytes()) > 1000


COLOUR_BLIND = {
    # Rows of the matrices of Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def seen(colour: str, kind: str) -> tuple[float, ...]:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    rows = [sum(a * b for a, b in zip(row, linear, strict=True)) for row in COLOUR_BLIND[kind]]
    return tuple(min(1.0, max(0.0, part)) ** (1 / 2.2) for part in rows)


@pytest.mark.parametrize("kind", COLOUR_BLIND)
def test_kinds_of_actions_look_different_to_everybody(kind: str) -> None:
    for one, other in itertools.combinations(OF_KIND.values(), 2):
        apart = zip(seen(one, kind), seen(other, kind), strict=True)
        assert sum((a - b) ** 2 for a, b in apart) ** 0.5 > 0.2, (one, other)


def test_text_stands_out_from_every_colour() -> None:
    for colour in (*OF_KIND.values(), *OF_ROLE.values()):
        for shade in shades(colour, 4):
            assert text_on(shade) in ("#ffffff", "#000000")
    assert (text_on("#000000"), text_on("#ffffff")) == ("#ffffff", "#000000")
    assert (tint("#102030", 0), tint("#102030", 1)) == ("#102030", "#ffffff")
    assert shades("#000000", 1) == ["#000000"]


def test_matplotlib_that_is_not_there_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError) as caught:
        canvas.save(lambda figure: None, tmp_path / "x.svg")
    assert (caught.value.code, caught.value.exit_code) == ("PPC008", 2)
    assert "pip install 'pp-precompile[plot]'" in str(caught.value.hint)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="PPC008: the picture cannot be written to"):
        canvas.save(lambda figure: None, tmp_path / "none" / "x.svg")
