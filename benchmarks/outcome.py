"""What a training run reported: phases of every rank, losses of every step."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.counted import read_counts

PHASES: dict[str, str] = {
    "imports": "process start to trainer",
    "init": "trainer, without stages",
    "agree": "stages: agree",
    "build": "stages: trace, compile, publish",
    "load": "stages: load",
    "stages": "stages, all",
    "first_step": "step 1",
    "first_step_done": "process start to end of step 1",
    "steady_step": "later steps, median",
    "wall": "whole command",
}
"""Phases in the order they are shown, with what to call them."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One training run.

    ``phases`` holds seconds by the names of :data:`PHASES`, each of the rank that took longest:
    a job is as slow as its slowest rank. ``losses`` and ``grad_norms`` are hexadecimal floats.
    ``counts`` are those of :data:`benchmarks.counted.COUNTS`, of all ranks together.
    """

    phases: Mapping[str, float]
    ranks: Sequence[Mapping[str, Any]]
    losses: tuple[str, ...]
    grad_norms: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""
        return {
            "phases": dict(self.phases),
            "losses": list(self.losses),
            "grad_norms": list(self.grad_norms),
            "counts": dict(self.counts),
            "ranks": [dict(rank) for rank in self.ranks],
        }


def read_outcome(folder: Path, *, ranks: int, wall: float) -> Outcome:
    """Return what ``ranks`` ranks left in ``folder``.

    Raises:
        ValueError: if a rank left no phases, there was no step after the first, or the ranks that
            know the loss do not report the same one.
    """
    found = [_read(folder / f"rank_{rank}.json") for rank in range(ranks)]
    reports = {file.read_text() for file in sorted(folder.glob("losses_*.json"))}
    if len(reports) != 1:
        raise ValueError(f"{len(reports)} different reports of losses in {folder}, expected one")
    steps = json.loads(reports.pop())
    return Outcome(
        phases={**slowest([rank_phases(rank) for rank in found]), "wall": wall},
        ranks=found,
        losses=tuple(step["loss"] for step in steps),
        grad_norms=tuple(step["grad_norm"] for step in steps),
        counts=read_counts(folder),
    )


def rank_phases(rank: Mapping[str, Any]) -> dict[str, float]:
    """Return one rank's phases, with its list of steps as first and steady step.

    Raises:
        ValueError: if there was no step after the first.
    """
    first, *later = rank["steps"]
    if not later:
        raise ValueError("a steady step needs at least two training steps")
    named = {name: float(rank[name]) for name in PHASES if name in rank}
    return named | {"first_step": first, "steady_step": statistics.median(later)}


def slowest(ranks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return each phase's longest time over the ranks."""
    return {name: max(rank[name] for rank in ranks) for name in ranks[0]}


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise ValueError(f"a rank wrote no {file.name}")
    phases: dict[str, Any] = json.loads(file.read_text())
    return phases
