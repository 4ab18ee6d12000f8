"""Where the programs and values of a build stand in a picture: one column for each stage.

Neighbouring stages with the same programs share a column.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.dependency import Node

Spot = tuple[float, float]
"""Inches from the left and from the top."""

MAX_COLUMNS = 40
"""Most columns of a picture."""

ROWS = (
    "unshard",
    "unsharded",
    "forward",
    "saved",
    "backward",
    "backward_input",
    "deferred",
    "backward_weight",
    "unsharded_gradient",
    "reduce_grad",
    "overlap",
)
"""Programs and values of a column, from top to bottom."""

_COLUMN, _ROW = 3.3, 0.78
"""Inches from column to column and from row to row."""

BOX_WIDTH, BOX_HEIGHT = 1.32, 0.46
VALUE_WIDTH, VALUE_HEIGHT = 1.05, 0.36
"""Inches of a program's box and of a value's."""

LEFT, _RIGHT, _TOP, _BOTTOM, _TITLE = 0.25, 0.25, 0.45, 0.4, 0.35

BAND = 6
"""Most columns next to each other; further ones stand below, with the values in between again."""

AGAIN = " again"


@dataclass(frozen=True)
class Column:
    """Stages that follow each other and run the same programs; the first one stands for all."""

    first: StageRecord
    last: int

    @property
    def stages(self) -> range:
        """Indices of its stages."""
        return range(self.first.index, self.last + 1)

    @property
    def title(self) -> str:
        """Name of the stages."""
        if self.first.index == self.last:
            return f"stage {self.last}"
        return f"stages {self.first.index} to {self.last}"


def columns_of(stages: Sequence[StageRecord]) -> list[Column]:
    """Return the columns of a picture.

    Raises:
        UsageError: PPC008 if there are more than :data:`MAX_COLUMNS`.
    """
    columns: list[Column] = []
    for stage in stages:
        if columns and _keys(columns[-1].first) == _keys(stage):
            columns[-1] = Column(columns[-1].first, stage.index)
        else:
            columns.append(Column(stage, stage.index))
    if len(columns) > MAX_COLUMNS:
        raise UsageError(
            "PPC008",
            "the build has too many stages with programs of their own for a picture",
            expected=f"at most {MAX_COLUMNS}",
            found=len(columns),
            hint="'pp-precompile show --stage K' shows one stage in full",
        )
    return columns


def _keys(stage: StageRecord) -> dict[str, str]:
    return {role: program.key for role, program in stage.programs.items()}


class Grid:
    """Where the middle of each node is."""

    def __init__(self, columns: Sequence[Column]) -> None:
        roles = {role for column in columns for role in column.first.programs}
        handed = {row for row in ROWS if any(_hands(column.first, row) for column in columns)}
        rows = [row for row in ROWS if row in roles or row in handed]
        self._depth = {row: _ROW * (i + 0.5) for i, row in enumerate(rows)}
        self._band = _TITLE + _ROW * len(rows)
        self.columns = columns
        self.spots: dict[Node, Spot] = {}
        for position, column in enumerate(columns):
            self._place(position, column)
            if position:
                self._place_gradients(position, column)
        self._place_loss()

    @property
    def size(self) -> Spot:
        """Width and height of the picture."""
        right = max(x for x, _ in self.spots.values()) + BOX_WIDTH / 2
        bands = 1 + (len(self.columns) - 1) // BAND
        return right + _RIGHT, _TOP + self._band * bands + _BOTTOM

    def title(self, position: int) -> Spot:
        """Where the name of a column stands."""
        return self._x(position), _TOP + self._band * (position // BAND) + 0.6 * _TITLE

    def _x(self, position: int) -> float:
        """Return the middle of a column; further bands have values on the left of their first."""
        left = LEFT + (VALUE_WIDTH / 2 if len(self.columns) > BAND else 0)
        return left + _COLUMN * (position % BAND + 0.5)

    def _y(self, position: int, *rows: str) -> float:
        """Return the height of the first of ``rows`` that is there, in a column's band."""
        depth = next((self._depth[row] for row in rows if row in self._depth), 0.0)
        return _TOP + self._band * (position // BAND) + _TITLE + depth

    def _place(self, position: int, column: Column) -> None:
        stage, x = column.first.index, self._x(position)
        for row in self._depth:
            if row in column.first.programs:
                self.spots["program", stage, row] = (x, self._y(position, row))
            elif _hands(column.first, row):
                self.spots["value", stage, row] = (x, self._y(position, row))
        outputs = (x + _COLUMN / 2, self._y(position, "forward"))
        self.spots["value", column.last, "outputs"] = outputs
        if position % BAND == 0 and position:
            again = (x - _COLUMN / 2, self._y(position, "forward"))
            self.spots["value", self.columns[position - 1].last, f"outputs{AGAIN}"] = again

    def _place_gradients(self, position: int, column: Column) -> None:
        """Put what a column's backward returns on the right of the column before."""
        if not _returns_gradients(column.first):
            return
        stage, before = column.first.index, position - 1
        at_right = (self._x(before) + _COLUMN / 2, self._y(before, *_BACKWARD))
        self.spots["value", stage, "gradients"] = at_right
        if position % BAND == 0:
            at_left = (self._x(position) - _COLUMN / 2, self._y(position, *_BACKWARD))
            self.spots["value", stage, f"gradients{AGAIN}"] = at_left

    def _place_loss(self) -> None:
        last, position = self.columns[-1].first, len(self.columns) - 1
        if "loss" in last.programs:
            x = self._x(position) + _COLUMN
            self.spots["program", last.index, "loss"] = (x, self._y(position, "forward"))
            self.spots["value", last.index, "loss"] = (x, self._y(position, *_BACKWARD, "forward"))


_BACKWARD = ("backward", "backward_input", "backward_weight")
"""Rows that gradients between columns stand in: the first that is there."""


def _returns_gradients(stage: StageRecord) -> bool:
    return any(
        value.kind == "argument_gradient"
        for role, program in stage.programs.items()
        for value in program.outputs
        if role != "loss"
    )


def _hands(stage: StageRecord, kind: str) -> bool:
    """Tell whether programs of ``stage`` hand values of a kind to each other."""
    programs = stage.programs.values()
    return any(v.kind == kind for p in programs for v in p.outputs) and any(
        v.kind == kind for p in programs for v in p.inputs
    )
