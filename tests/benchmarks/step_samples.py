"""Measurements of steps made up for tests."""

from typing import Any

from benchmarks.step_report import Measured
from benchmarks.steps import Steps
from tests.benchmarks.outcomes import outcome

LOSSES = (8.0, 7.5)


def one(seconds: float, *, cpu: float = 1.0, busy: float = 0.0) -> dict[str, Any]:
    """Return a step of one rank."""
    return {
        "seconds": seconds,
        "cpu": cpu,
        "waiting": 0.0,
        "programs": 0.0,
        "busy": {"F": busy},
        "calls": {"F": 8},
    }


def steps(seconds: float, *, cpu: float = 1.0, losses: tuple[float, ...] = LOSSES) -> Steps:
    """Return a run of two ranks that compute half of the time; the first step does not count."""
    rank = [one(100.0), *(one(seconds, cpu=cpu / 2, busy=seconds / 2) for _ in range(3))]
    return Steps(outcome=outcome(1.0, losses), warmup=1, ranks=[rank, rank])


def measured() -> list[Measured]:
    """Return two schedules in two repetitions, the first refused by GraphPP."""
    gpipe = Measured(
        schedule="GPipe",
        unit_bubble=11.1,
        build_seconds=40.0,
        runs={
            "ours": [steps(1.0), steps(2.0)],
            "eager": [steps(3.0), steps(4.0)],
            "eager_plain": [steps(2.0), steps(2.0)],
        },
        refused={"graph_pp": "GraphPP wants another schedule"},
    )
    looped = Measured(
        schedule="LoopedBFS",
        unit_bubble=5.9,
        build_seconds=30.0,
        runs={
            "ours": [steps(1.0, cpu=2.0), steps(1.0, cpu=2.0)],
            "graph_pp": [steps(1.5, cpu=1.0), steps(1.25, cpu=1.0)],
            "eager": [steps(3.0), steps(3.0)],
            "eager_plain": [steps(2.0), steps(2.0)],
        },
    )
    return [looped, gpipe]


def wrapper(microseconds: float) -> dict[str, Any]:
    """Return what one repetition of the wrapper's overhead says."""
    times = {"call": 2 * microseconds, "overhead": microseconds}
    return {
        "goal": 100.0,
        "stages": {"2 parameters": dict.fromkeys("FBIW", times)},
        "autograd": {"F": times, "B": times},
    }
