"""A measurement as JSON."""

from typing import Any

from benchmarks import ratios
from benchmarks.job import Job
from benchmarks.measure import Samples

FORMAT = 1
"""Raised when a field changes its meaning; new fields do not count."""


def as_dict(
    job: Job, machine: dict[str, object], samples: Samples, *, build_seconds: float
) -> dict[str, Any]:
    """Return everything that was measured; times are in seconds."""
    return {
        "format": FORMAT,
        "machine": machine,
        "job": {
            "module": job.module,
            "config": job.config,
            "degree": job.degree,
            "shard": job.shard,
            "steps": job.steps,
            "seed": job.seed,
        },
        "build_seconds": build_seconds,
        "phases": {
            way: {name: spread.as_dict() for name, spread in phases.items()}
            for way, phases in ratios.phases(samples).items()
        },
        "ratios": {name: spread.as_dict() for name, spread in ratios.ratios(samples).items()},
        "eager_loss_difference": ratios.eager_difference(samples),
        "checks": ratios.checks(samples),
        "samples": {
            way: [outcome.as_dict() for outcome in outcomes] for way, outcomes in samples.items()
        },
    }
