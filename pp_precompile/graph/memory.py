"""How much a rank holds between its actions, over all its stages at once.

Peaks are taken over the order of the actions, which no time changes: those of single stages do not
add up to that of their rank, since they are not reached together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pp_precompile.contract.errors import StaleBuildError, Where
from pp_precompile.contract.schedule import Action
from pp_precompile.graph.held import Held


class Level(NamedTuple):
    """Bytes that a rank holds once the action at ``position`` has handed over its results.

    ``activations`` belong to microbatches under way, ``gathered`` are gathered parameters and
    gradients that have yet to be reduced.
    """

    position: int
    activations: int
    gathered: int

    @property
    def both(self) -> int:
        """Bytes of both kinds."""
        return self.activations + self.gathered


class Peaks(NamedTuple):
    """The highest levels of a rank: of activations, of what is gathered, of both together."""

    activations: Level
    gathered: Level
    both: Level


def levels(
    actions: Sequence[Action], held: Mapping[int, Held], microbatches: int
) -> Iterator[Level]:
    """Yield the levels of a rank in order, one or two for each of its ``actions``.

    There are two where the last backward of a step frees what was gathered: before and after.

    Args:
        actions: computations of one rank, each stage and microbatch complete and in order.
        held: what its stages hold.
        microbatches: number of microbatches in a step.

    Raises:
        StaleBuildError: PPC105 for a backward in parts of a stage without programs for it.
    """
    now = _Now(held)
    done: Counter[int] = Counter()
    for position, action in enumerate(actions):
        now.run(action.stage, action.kind)
        yield Level(position, now.activations, now.gathered)
        if action.kind in ("B", "W"):
            done[action.stage] += 1
            if done[action.stage] == microbatches and now.end(action.stage):
                yield Level(position, now.activations, now.gathered)


class _Now:
    """What a rank holds at one moment."""

    def __init__(self, held: Mapping[int, Held]) -> None:
        self.activations = self.gathered = 0
        self._held = held
        self._once: set[tuple[int, str]] = set()

    def run(self, stage: int, kind: str) -> None:
        """Run an action up to where its results are held."""
        own = self._held[stage]
        if kind == "F":
            self.activations += own.saved + own.loss
            self._hold(stage, "gathered", own.gathered)
        if kind in ("B", "I"):
            self.activations -= own.saved + own.loss
            self._hold(stage, "gradients of the loss", own.unreduced_by_loss)
        if kind == "I":
            self.activations += _kept(own, stage)
        if kind == "W":
            self.activations -= _kept(own, stage)
        if kind in ("B", "W"):
            self._hold(stage, "gradients", own.unreduced - own.unreduced_by_loss)

    def end(self, stage: int) -> bool:
        """Free what was gathered, after the last backward; returns whether there was anything."""
        own = self._held[stage]
        self.gathered -= own.gathered + own.unreduced
        return own.gathered + own.unreduced > 0

    def _hold(self, stage: int, what: str, size: int) -> None:
        """Hold once a step what the first of several actions brings."""
        if (stage, what) not in self._once:
            self._once.add((stage, what))
            self.gathered += size


def peaks(actions: Sequence[Action], held: Mapping[int, Held], microbatches: int) -> Peaks:
    """Return the highest levels, the first of each kind where several are equal.

    A rank without actions holds nothing: its levels are 0, at position 0.

    Raises:
        StaleBuildError: as :func:`levels`.
    """
    nothing = Level(0, 0, 0)
    activations = gathered = both = nothing
    for level in levels(actions, held, microbatches):
        activations = level if level.activations > activations.activations else activations
        gathered = level if level.gathered > gathered.gathered else gathered
        both = level if level.both > both.both else both
    return Peaks(activations, gathered, both)


def _kept(held: Held, stage: int) -> int:
    if held.kept is None:
        raise StaleBuildError(
            "PPC105",
            f"stage {stage} has no programs for a backward in two parts",
            where=Where(stage=stage),
            expected="the programs that I and W run",
            found="a build for whole backwards",
            hint="build with the job's schedule",
        )
    return held.kept
