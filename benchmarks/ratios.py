"""What a measurement says: phases, ratios and checks, from the samples of all repetitions."""

from benchmarks import losses
from benchmarks.job import COLD, EAGER, WARM
from benchmarks.measure import Samples
from benchmarks.outcome import PHASES
from benchmarks.spread import Spread, ratio, spread

RATIOS: dict[str, tuple[str, str, str]] = {
    f"{COLD}/{WARM}": (COLD, WARM, "stages"),
    f"{COLD}/{WARM}_first_step": (COLD, WARM, "first_step_done"),
    f"{WARM}/{EAGER}_first_step": (WARM, EAGER, "first_step_done"),
    f"{WARM}/{EAGER}_steady": (WARM, EAGER, "steady_step"),
}
"""Ratios by name: numerator, denominator, phase."""

EAGER_TOLERANCE = 1e-5
"""Largest relative difference to eager losses: float32 sums in another order, over a few steps."""


def phase(samples: Samples, way: str, name: str) -> list[float]:
    """Return one phase of one way in every repetition."""
    return [outcome.phases[name] for outcome in samples[way]]


def phases(samples: Samples) -> dict[str, dict[str, Spread]]:
    """Return the spread of every phase, by way and phase."""
    return {way: {name: spread(phase(samples, way, name)) for name in PHASES} for way in samples}


def ratios(samples: Samples) -> dict[str, Spread]:
    """Return every ratio of :data:`RATIOS`."""
    return {
        name: ratio(phase(samples, above, what), phase(samples, below, what))
        for name, (above, below, what) in RATIOS.items()
    }


def checks(samples: Samples) -> dict[str, bool]:
    """Return what must hold for the times to mean anything, by a sentence each."""
    first = samples[COLD][0]
    compiled = [*samples[COLD], *samples[WARM]]
    return {
        "losses and gradient norms of cold and warm runs are equal bit for bit": all(
            losses.same_bits(outcome, first) for outcome in compiled
        ),
        f"losses of eager runs are equal within {EAGER_TOLERANCE:.0e}": (
            eager_difference(samples) <= EAGER_TOLERANCE
        ),
    }


def eager_difference(samples: Samples) -> float:
    """Return the largest relative difference between the losses of eager and cold runs."""
    first = samples[COLD][0]
    return max(losses.difference(outcome, first) for outcome in samples[EAGER])
