"""The pipeline schedule as data: who runs which stages, and what each rank does in which order.

An action is written as torch.distributed.pipelining writes it in its CSV files: stage, kind,
microbatch (``2F0``), with kinds F (forward), B (full backward), I (gradient of the inputs) and
W (gradient of the weights), and for communication SEND_F, RECV_F, SEND_B and RECV_B. UNSHARD,
RESHARD and REDUCE_GRAD are for a whole stage and have no microbatch (``1UNSHARD``). A forward and a
backward that may overlap are written as one action of two: ``(0F4;1B0)OVERLAP_F_B``.
"""

import re
from typing import Annotated

import msgspec

from pp_precompile.contract.digest import StoredDigest
from pp_precompile.contract.integers import Natural, Positive
from pp_precompile.contract.limits import AtMostActions, AtMostStages, Name

# One text for one action: no signs, leading zeros or digits of other scripts.
_NUMBER = "(0|[1-9][0-9]{0,8})"
_ACTION = re.compile(
    f"{_NUMBER}(?:(F|B|I|W|SEND_F|RECV_F|SEND_B|RECV_B){_NUMBER}|(UNSHARD|RESHARD|REDUCE_GRAD))"
)
_OVERLAP = re.compile(r"\(([^();]+);([^();]+)\)OVERLAP_F_B")


class Action(msgspec.Struct, frozen=True):
    """One step of one rank; ``microbatch`` is None where the kind has none."""

    stage: int
    kind: str
    microbatch: int | None

    @classmethod
    def parse(cls, text: str) -> "Action":
        """Read ``2F0``.

        Raises:
            ValueError: if ``text`` is not an action.
        """
        match = _ACTION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:80]!r} is not an action such as '2F0' or '1UNSHARD'")
        stage, kind, microbatch, kind_of_stage = match.groups()
        return cls(int(stage), kind or kind_of_stage, int(microbatch) if microbatch else None)

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{'' if self.microbatch is None else self.microbatch}"


def parse_actions(text: str) -> tuple[Action, ...]:
    """Read one cell of a schedule: an action, or the two of ``(0F4;1B0)OVERLAP_F_B`` in order.

    Raises:
        ValueError: if ``text`` is neither, or overlaps other than a forward and a B or an I.
    """
    match = _OVERLAP.fullmatch(text)
    if match is None:
        return (Action.parse(text),)
    pair = Action.parse(match[1]), Action.parse(match[2])
    if sorted(action.kind for action in pair) not in (["B", "F"], ["F", "I"]):
        raise ValueError(f"{text[:80]!r} does not overlap a forward with a backward")
    return pair


class ScheduleTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule unrolled for one job.

    ``stages_of_rank[p]`` are the stage indices of pipeline rank ``p``; ``actions[p]`` its actions
    in order (:func:`parse_actions`), bubbles left out; ``microbatch_size`` counts sequences.
    ``csv`` is the digest of the CSV file's bytes where the schedule came from one; ``name`` is then
    the schedule that the job names beside it, whose placement of stages on ranks the file must
    have.
    """

    name: Name
    csv: StoredDigest | None
    microbatches: Positive
    microbatch_size: Positive
    stages_of_rank: Annotated[
        tuple[Annotated[tuple[Natural, ...], AtMostStages], ...], AtMostStages
    ]
    actions: Annotated[tuple[Annotated[tuple[str, ...], AtMostActions], ...], AtMostStages]

    @property
    def stages(self) -> int:
        """Number of stages over all pipeline ranks."""
        return sum(len(stages) for stages in self.stages_of_rank)

    def owner(self, stage: int) -> int:
        """Return the pipeline rank that runs ``stage``.

        Raises:
            KeyError: if no rank runs it.
        """
        for rank, stages in enumerate(self.stages_of_rank):
            if stage in stages:
                return rank
        raise KeyError(stage)


def backward_kinds(schedule: ScheduleTable, stage: int) -> frozenset[str]:
    """Return which of B, I and W the schedule runs for ``stage``."""
    actions = schedule.actions[schedule.owner(stage)]
    return frozenset(
        action.kind
        for text in actions
        for action in parse_actions(text)
        if action.stage == stage and action.kind in ("B", "I", "W")
    )
