"""A measurement as JSON."""

from collections.abc import Mapping
from typing import Any

from benchmarks import ratios
from benchmarks.job import Job
from benchmarks.measure import Samples
from benchmarks.ways import EAGER

FORMAT = 1
"""Raised when a field changes its meaning; new fields do not count."""


def as_dict(
    job: Job,
    machine: dict[str, object],
    samples: Samples,
    *,
    build_seconds: float,
    refused: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return everything that was measured; times are in seconds.

    ``refused`` has the reasons of ways that do not run this job.
    """
    return {
        "format": FORMAT,
        "machine": machine,
        "job": {
            "front_end": job.front_end.name,
            "module": job.module,
            "config": job.config,
            "degree": job.degree,
            "shard": job.shard,
            "steps": job.steps,
            "seed": job.seed,
            "schedule": job.schedule,
        },
        "build_seconds": build_seconds,
        "phases": {
            way: {name: spread.as_dict() for name, spread in phases.items()}
            for way, phases in ratios.phases(samples).items()
        },
        "ratios": {name: spread.as_dict() for name, spread in ratios.ratios(samples).items()},
        "eager_loss_difference": ratios.difference(samples, EAGER),
        "loss_differences": {way: ratios.difference(samples, way) for way in samples},
        "refused": dict(refused or {}),
        "checks": ratios.checks(samples),
        "samples": {
            way: [outcome.as_dict() for outcome in outcomes] for way, outcomes in samples.items()
        },
    }
