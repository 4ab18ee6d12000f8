"""How long actions take: units, or seconds from files.

A forward, a gradient of the inputs and a gradient of the weights take one unit each, a whole
backward two. docs/plan.md describes the files and where measured ones come from.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from pp_precompile.contract.errors import UsageError, Where

UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}
"""Units of time by kind of action."""

SCHEMA = "pp_precompile.times/1"

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Most bytes of a file: some ten times what as many stages as there may be need."""

MAX_SECONDS = 86_400.0
"""Most seconds of one action: a day."""

_HINT = "correct the file; docs/plan.md describes it"

Kind = Literal["F", "B", "I", "W"]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]
_Stage = Annotated[int, msgspec.Meta(ge=0)]


class TimesFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file of times may hold; all times are seconds.

    ``all`` gives them by kind for every stage that ``stages`` does not give them for;
    ``communication`` is what a message between two ranks takes.
    """

    schema: Literal["pp_precompile.times/1"]
    all: dict[Kind, Seconds] = {}
    stages: dict[_Stage, dict[Kind, Seconds]] = {}
    communication: Seconds | None = None


@dataclass(frozen=True, kw_only=True)
class Times:
    """Times of actions by kind, and by stage and kind where a stage has its own.

    ``communication`` passes between the end of an action and the begin of one on another rank that
    waits for it. ``unit`` is what one of a time is: ``unit`` or ``second``.
    """

    all: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    communication: float = 0
    unit: Literal["unit", "second"] = "second"

    def of(self, stage: int, kind: str) -> float:
        """Return the time of an action.

        Raises:
            UsageError: PPC007 if there is none.
        """
        found = self.stages.get(stage, {}).get(kind, self.all.get(kind))
        if found is None:
            raise UsageError(
                "PPC007",
                f"there is no time for {kind} of stage {stage}",
                where=Where(stage=stage),
                expected=f"a number at stages.{stage}.{kind} or all.{kind}",
                found=f"times of stages {sorted(self.stages)[:20]}, of all: {sorted(self.all)}",
                hint="measure or write down this time too; docs/plan.md describes the file",
            )
        return found


UNIT_TIMES = Times(all={"F": 1, "B": 2, "I": 1, "W": 1}, unit="unit")
"""Times that compare schedules and predict nothing; communication takes none."""


def read_times(files: Iterable[tuple[str, bytes]]) -> Times:
    """Read times from the bytes of files, each with its name; each rank may have written its own.

    Raises:
        UsageError: PPC007 for bytes that are too many or no such document (a number that is
            negative, not finite or above :data:`MAX_SECONDS` included), and for a time that two
            files give.
    """
    of_all: dict[str, float] = {}
    of_stages: dict[int, dict[str, float]] = {}
    communication: float | None = None
    for name, data in files:
        read = _read(name, data)
        _add(name, "all", of_all, read.all)
        for stage, own in read.stages.items():
            _add(name, f"stages.{stage}", of_stages.setdefault(stage, {}), own)
        if read.communication is not None:
            if communication is not None:
                raise _twice(name, "communication")
            communication = read.communication
    return Times(all=of_all, stages=of_stages, communication=communication or 0)


def _read(name: str, data: bytes) -> TimesFile:
    if len(data) > MAX_FILE_BYTES:
        raise _refused(name, f"at most {MAX_FILE_BYTES} bytes", f"{len(data)} bytes")
    try:
        return msgspec.json.decode(data, type=TimesFile)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        expected = f"JSON with schema {SCHEMA} and times of 0 to {MAX_SECONDS:.0f} seconds"
        raise _refused(name, expected, error) from error


def _add(name: str, place: str, known: dict[str, float], more: Mapping[Kind, float]) -> None:
    for kind, seconds in more.items():
        if kind in known:
            raise _twice(name, f"{place}.{kind}")
        known[kind] = seconds


def _twice(name: str, place: str) -> UsageError:
    return _refused(name, "each time once in all files", f"{place} once more")


def _refused(name: str, expected: str, found: object) -> UsageError:
    return UsageError(
        "PPC007",
        f"{name} cannot be used for the times of actions",
        expected=expected,
        found=str(found)[:300],
        hint=_HINT,
    )
