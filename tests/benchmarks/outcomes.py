"""Outcomes made up for tests."""

from benchmarks.measure import Samples
from benchmarks.outcome import PHASES, Outcome


def outcome(seconds: float, losses: tuple[float, ...] = (8.0, 7.5), **phases: float) -> Outcome:
    """Return a run whose phases all took ``seconds``, but for those named."""
    return Outcome(
        phases=dict.fromkeys(PHASES, seconds) | phases,
        ranks=({"steps": [1.0, 1.0]},),
        losses=tuple(loss.hex() for loss in losses),
        grad_norms=((0.5).hex(),) * len(losses),
        counts={"compiled": 0, "loaded": 12, "bytes_loaded": 345678},
    )


def samples() -> Samples:
    """Return two repetitions: in seconds cold takes 40 and 60 for everything, warm 2, eager 1."""
    return {
        "cold_jit": [outcome(40.0), outcome(60.0)],
        "warm_fresh_host": [outcome(2.0, steady_step=0.5), outcome(2.0, steady_step=0.5)],
        "eager": [outcome(1.0), outcome(1.0)],
        "graph_pp_warm_cache": [outcome(6.0), outcome(8.0)],
        "mega_cache": [outcome(20.0), outcome(10.0)],
    }
