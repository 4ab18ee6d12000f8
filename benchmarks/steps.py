"""What a run reported about its steps, and the figures that follow from it."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.outcome import Outcome

Step = Sequence[Mapping[str, Any]]
"""One step as every rank saw it; see :class:`benchmarks.step_clock.StepClock`."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """All steps of one run; the first ``warmup`` of them do not count."""

    outcome: Outcome
    warmup: int
    ranks: Sequence[Sequence[Mapping[str, Any]]]

    def median(self, figure: Callable[[Step], float]) -> float:
        """Return the median of a figure over the steps that count."""
        steps = list(zip(*self.ranks, strict=True))[self.warmup :]
        return statistics.median(figure(step) for step in steps)

    def as_dict(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""
        return {
            "warmup": self.warmup,
            "losses": list(self.outcome.losses),
            "grad_norms": list(self.outcome.grad_norms),
            "ranks": [[dict(step) for step in rank] for rank in self.ranks],
        }


def seconds(step: Step) -> float:
    """Return how long a step took: as long as on the rank that took longest."""
    return max(rank["seconds"] for rank in step)


def busy(step: Step) -> float:
    """Return the time inside compute actions, all ranks together."""
    return sum(sum(rank["busy"].values()) for rank in step)


def bubble(step: Step) -> float:
    """Return the percentage of all ranks' time that was not spent in compute actions."""
    return 100 * (1 - busy(step) / (len(step) * seconds(step)))


def waiting(step: Step) -> float:
    """Return the percentage of all ranks' time that was spent waiting for messages."""
    return 100 * sum(rank["waiting"] for rank in step) / (len(step) * seconds(step))


def cpu(step: Step) -> float:
    """Return the processor time of a step, all ranks and threads together."""
    return sum(rank["cpu"] for rank in step)


def around(step: Step) -> float:
    """Return the milliseconds inside actions, but outside of compiled programs, all ranks."""
    return 1000 * (busy(step) - sum(rank["programs"] for rank in step))


FIGURES: dict[str, Callable[[Step], float]] = {
    "step": seconds,
    "bubble": bubble,
    "waiting": waiting,
    "cpu": cpu,
    "around": around,
}
"""The figures of a run by name."""


def read_steps(folder: Path, *, outcome: Outcome, ranks: int, warmup: int) -> Steps:
    """Return the steps that ``ranks`` ranks left in ``folder``.

    Raises:
        ValueError: if a rank left none, ranks counted differently, or no step is left to count.
    """
    found = []
    for rank in range(ranks):
        file = folder / f"steps_{rank}.json"
        if not file.exists():
            raise ValueError(f"a rank wrote no {file.name}")
        found.append(json.loads(file.read_text()))
    counts = {len(steps) for steps in found}
    if len(counts) != 1:
        raise ValueError(f"the ranks counted different numbers of steps: {sorted(counts)}")
    if max(counts) <= warmup:
        raise ValueError(f"no step is left after {warmup} to warm up")
    return Steps(outcome=outcome, warmup=warmup, ranks=found)
