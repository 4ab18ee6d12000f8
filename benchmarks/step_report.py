"""A measurement of steps as data: figures, ratios and checks from all repetitions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import losses
from benchmarks.job import Job
from benchmarks.ratios import TOLERANCE
from benchmarks.spread import Spread, ratio, spread
from benchmarks.step_ways import COMPILED, OURS, SCHEDULES, WARMUP
from benchmarks.steps import FIGURES, Steps

FORMAT = 1
"""Raised when a field changes its meaning; new fields do not count."""

BENCHMARK = "step_time"
"""Tells this benchmark's files from those of others."""

_RATIOS = {"": "step", "_cpu": "cpu"}
"""The figures that are compared with ours, by what they add to a ratio's name."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One schedule: its runs by way, and why a way has none.

    ``unit_bubble`` is the percentage that ranks wait if every action takes one unit of time, a
    whole backward two, and messages none.
    """

    schedule: str
    unit_bubble: float
    build_seconds: float
    runs: dict[str, list[Steps]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def figure(self, way: str, name: str) -> list[float]:
        """Return one figure of one way in every repetition."""
        return [steps.median(FIGURES[name]) for steps in self.runs[way]]

    def ratios(self) -> Iterator[tuple[str, Spread]]:
        """Yield every other way's step and processor time by name, in multiples of ours."""
        for way in self.runs:
            if way != OURS:
                for suffix, name in _RATIOS.items():
                    text = f"{way}/{OURS}{suffix}[{self.schedule}]"
                    yield text, ratio(self.figure(way, name), self.figure(OURS, name))

    def loss_differences(self) -> dict[str, float]:
        """Return by way the largest relative difference to the losses of our first run."""
        first = self.runs[OURS][0].outcome
        return {
            way: max(losses.difference(steps.outcome, first) for steps in runs)
            for way, runs in self.runs.items()
        }

    def same_bits(self) -> bool:
        """Tell whether all runs of ours report the same losses and gradient norms."""
        first, *others = (steps.outcome for steps in self.runs[OURS])
        return all(losses.same_bits(other, first) for other in others)


def checks(measured: Sequence[Measured]) -> dict[str, bool]:
    """Return what must hold for the times to mean anything, by a sentence each."""
    largest = max(max(one.loss_differences().values()) for one in measured)
    return {
        "losses and gradient norms of ours are equal bit for bit in all repetitions": all(
            one.same_bits() for one in measured
        ),
        f"losses of all ways are equal within {TOLERANCE:.0e} in every schedule": (
            largest <= TOLERANCE
        ),
    }


def as_dict(
    job: Job,
    machine: dict[str, object],
    measured: Sequence[Measured],
    *,
    ways: Sequence[str],
    wrapper: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return everything that was measured; times are in seconds unless their name says else.

    ``ways`` are those that were asked for; ``wrapper`` holds what
    :mod:`benchmarks.wrapper_overhead` said in every repetition.
    """
    measured = sorted(measured, key=lambda one: SCHEDULES.index(one.schedule))
    return {
        "benchmark": BENCHMARK,
        "format": FORMAT,
        "machine": machine,
        "job": {
            "module": job.module,
            "config": job.config,
            "ranks": job.degree,
            "steps": job.steps - WARMUP,
            "warmup": WARMUP,
            "seed": job.seed,
        },
        "ways": list(ways),
        "schedules": {one.schedule: _schedule(one) for one in measured},
        "ratios": {name: found.as_dict() for one in measured for name, found in one.ratios()},
        "checks": checks(measured),
        "wrapper": list(wrapper),
        "samples": {
            one.schedule: {
                way: [steps.as_dict() for steps in runs] for way, runs in one.runs.items()
            }
            for one in measured
        },
    }


def _schedule(one: Measured) -> dict[str, Any]:
    return {
        "unit_bubble": one.unit_bubble,
        "build_seconds": one.build_seconds,
        "refused": one.refused,
        "loss_differences": one.loss_differences(),
        "ways": {
            way: {
                name: spread(one.figure(way, name)).as_dict()
                for name in FIGURES
                if name != "around" or way in COMPILED
            }
            for way in one.runs
        },
    }
