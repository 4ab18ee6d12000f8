"""Schedules from a CSV file, in torch's own format: one line a pipeline rank, one cell an action.

schedules/README.md describes the format. What is refused here is what has no meaning as a table:
cells that are no actions, stages and microbatches that do not count from 0. Whether the schedule is
complete and can run is for ``graph``.
"""

import csv
import io
import itertools
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.errors import UsageError, Where
from pp_precompile.contract.schedule import Action, ScheduleTable, parse_actions

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Most bytes that a schedule file may have: some hundred times what the largest known ones need."""

_COMPUTES = frozenset({"F", "B", "I", "W"})

_PADDING = re.compile(r"(?<=\()\s+|\s+(?=\))|\s*(?=;)|(?<=;)\s+")
"""Spaces inside ``( 0F4 ; 1B0 )OVERLAP_F_B``, where torch passes them over."""

_MOST_PADDED = 200
"""Most characters of a cell in which padding is dropped: its time grows with their square."""

_ACTION = "an action such as 2F0, 1UNSHARD or (0F4;1B0)OVERLAP_F_B, or an empty cell"

Rows = list[list[str]]

Placed = tuple[int, int, Action]
"""An action with the row and the column of its cell, from 0."""


@dataclass(frozen=True, kw_only=True)
class ScheduleFile:
    """A schedule as a file has it.

    ``digest`` is that of the file's bytes. ``actions[p]`` are the cells of pipeline rank ``p``,
    each as its one canonical text (:func:`~pp_precompile.contract.schedule.parse_actions`), without
    bubbles. ``communicates`` says that the file writes its sends and receives, its gathering or its
    reducing out, so that torch must not add them.
    """

    digest: Digest
    actions: tuple[tuple[str, ...], ...]
    communicates: bool

    @property
    def microbatches(self) -> int:
        """Number of microbatches in a step."""
        numbers = (
            action.microbatch
            for cells in self.actions
            for cell in cells
            for action in parse_actions(cell)
            if action.kind == "F"
        )
        return 1 + max(number for number in numbers if number is not None)

    @property
    def stages_of_rank(self) -> tuple[tuple[int, ...], ...]:
        """Stage indices of each pipeline rank, in ascending order."""
        return tuple(
            tuple(sorted({action.stage for cell in cells for action in parse_actions(cell)}))
            for cells in self.actions
        )

    def table(
        self,
        name: str,
        *,
        microbatch_size: int,
        stages_of_rank: tuple[tuple[int, ...], ...] | None = None,
    ) -> ScheduleTable:
        """Return the schedule of a job that runs this file.

        Args:
            name: of the schedule that places stages as the file does.
            microbatch_size: sequences of a microbatch.
            stages_of_rank: the stages of each pipeline rank in the order that the job has them; in
                ascending order if None.
        """
        return ScheduleTable(
            name=name,
            csv=self.digest,
            microbatches=self.microbatches,
            microbatch_size=microbatch_size,
            stages_of_rank=stages_of_rank or self.stages_of_rank,
            actions=self.actions,
        )


def open_schedule_file(path: str | Path, *, hint: str) -> ScheduleFile:
    """Read the schedule in the file ``path``; ``hint`` says what to do if that cannot be read.

    Raises:
        UsageError: PPC003 as :func:`read_schedule_file`, and for a file that cannot be read.
    """
    what = f"the schedule file {path}"
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "PPC003",
            f"{what} cannot be read: {error.strerror or error}",
            expected="a CSV file as schedules/README.md describes it",
            found=type(error).__name__,
            hint=hint,
        ) from error
    return read_schedule_file(data, what=what)


def read_schedule_file(data: bytes, *, what: str) -> ScheduleFile:
    """Read a schedule from the bytes of a CSV file.

    Args:
        data: bytes whose origin is not trusted.
        what: names the file in an error, for example ``"the schedule file a.csv"``.

    Raises:
        UsageError: PPC003, with row and column (both from 1) where there is one, if the bytes are
            too many or not UTF-8; there is no row, or one without an action; a cell is no action,
            or a bubble in a file with communication; a stage has actions on two ranks; or the
            stages, or the microbatches of a stage's forwards, are not 0, 1, 2, ….
    """
    rows = _rows(data, what)
    placed = list(_placed(rows, what))
    communicates = any(action.kind not in _COMPUTES for _, _, action in placed)
    _check_rows(rows, what)
    if communicates:
        _check_bubbles(rows, what)
    _check_stages(placed, what)
    _check_microbatches(placed, what)
    return ScheduleFile(
        digest=digest_bytes(data),
        actions=tuple(tuple(cell for cell in cells if cell) for cells in rows),
        communicates=communicates,
    )


def _rows(data: bytes, what: str) -> Rows:
    """Return all cells in canonical form; a bubble is an empty one."""
    if len(data) > MAX_FILE_BYTES:
        raise _refused(what, f"at most {MAX_FILE_BYTES} bytes", f"{len(data)} bytes")
    try:
        text = data.decode("utf-8")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise _refused(what, "CSV as UTF-8 text", error) from error
    if not rows:
        raise _refused(what, "one row for each pipeline rank", "an empty file")
    return [[_canonical(cell) for cell in row] for row in rows]


def _canonical(cell: str) -> str:
    cell = cell.strip()
    padded = cell.startswith("(") and len(cell) <= _MOST_PADDED
    return _PADDING.sub("", cell) if padded else cell


def _placed(rows: Rows, what: str) -> Iterator[Placed]:
    """Yield every action with row and column of its cell, or refuse the first that is none."""
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            if not cell:
                continue
            try:
                actions = parse_actions(cell)
            except ValueError as error:
                raise _refused_at(what, row, column, _ACTION, error) from error
            yield from ((row, column, action) for action in actions)


def _check_rows(rows: Rows, what: str) -> None:
    for row, cells in enumerate(rows):
        if not any(cells):
            raise _refused_at(what, row, None, "an action on each rank", "an empty row")


def _check_bubbles(rows: Rows, what: str) -> None:
    for row, cells in enumerate(rows):
        if "" in cells:
            expected = "an action: torch takes no bubbles in a file with communication"
            raise _refused_at(what, row, cells.index(""), expected, "an empty cell")


def _check_stages(placed: Iterable[Placed], what: str) -> None:
    owners: dict[int, int] = {}
    for row, column, action in placed:
        owner = owners.setdefault(action.stage, row)
        if owner != row:
            expected = f"stage {action.stage} on rank {owner} only"
            raise _refused_at(what, row, column, expected, f"{action} on rank {row}")
    missing = _first_missing(owners)
    if missing != len(owners):
        raise _refused(what, f"stages 0 to {max(owners)}", f"no action of stage {missing}")


def _check_microbatches(placed: Iterable[Placed], what: str) -> None:
    done: dict[int, set[int]] = {}
    for _, _, action in placed:
        of_stage = done.setdefault(action.stage, set())
        if action.kind == "F" and action.microbatch is not None:
            of_stage.add(action.microbatch)
    count = 1 + max((number for numbers in done.values() for number in numbers), default=0)
    for stage, numbers in sorted(done.items()):
        missing = _first_missing(numbers)
        if missing != count:
            expected = f"a forward of every stage for microbatches 0 to {count - 1}"
            raise _refused(what, expected, f"no {stage}F{missing}", Where(stage=stage))


def _first_missing(numbers: Container[int]) -> int:
    return next(number for number in itertools.count() if number not in numbers)


def _refused_at(
    what: str, row: int, column: int | None, expected: str, found: object
) -> UsageError:
    """Return the error for what stands at a place, whose numbers count from 0 here."""
    place = f"row {row + 1}" + ("" if column is None else f", column {column + 1}")
    return _refused(f"{what}, {place},", expected, found, Where(rank=row))


def _refused(what: str, expected: str, found: object, where: Where | None = None) -> UsageError:
    return UsageError(
        "PPC003",
        f"{what} is not a schedule",
        where=where,
        expected=expected,
        found=str(found)[:300],
        hint="correct the file; schedules/README.md describes the format",
    )
