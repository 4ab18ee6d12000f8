"""What a measurement says: phases, ratios and checks, from the samples of all repetitions."""

from benchmarks import losses
from benchmarks.block_compile import BLOCK_CACHE, BLOCK_JIT
from benchmarks.graph_pp import GRAPH_PP_CACHE, MEGA_CACHE
from benchmarks.measure import Samples
from benchmarks.outcome import PHASES
from benchmarks.spread import Spread, ratio, spread
from benchmarks.ways import BLOCK_WAYS, COLD, EAGER, GRAPH_PP_WAYS, WARM

RATIOS: dict[str, tuple[str, str, str]] = {
    f"{COLD}/{WARM}": (COLD, WARM, "stages"),
    f"{COLD}/{WARM}_first_step": (COLD, WARM, "first_step_done"),
    f"{GRAPH_PP_CACHE}/{WARM}": (GRAPH_PP_CACHE, WARM, "stages"),
    f"{GRAPH_PP_CACHE}/{WARM}_first_step": (GRAPH_PP_CACHE, WARM, "first_step_done"),
    f"{MEGA_CACHE}/{WARM}": (MEGA_CACHE, WARM, "stages"),
    f"{MEGA_CACHE}/{WARM}_first_step": (MEGA_CACHE, WARM, "first_step_done"),
    f"{BLOCK_JIT}/{WARM}_first_step": (BLOCK_JIT, WARM, "first_step_done"),
    f"{BLOCK_CACHE}/{WARM}_first_step": (BLOCK_CACHE, WARM, "first_step_done"),
    f"{BLOCK_CACHE}/{WARM}_steady": (BLOCK_CACHE, WARM, "steady_step"),
    f"{WARM}/{EAGER}_first_step": (WARM, EAGER, "first_step_done"),
    f"{WARM}/{EAGER}_steady": (WARM, EAGER, "steady_step"),
}
"""Ratios by name: numerator, denominator, phase."""

TOLERANCE = 1e-5
"""Largest relative difference between losses: float32 sums in another order, over a few steps."""


def phase(samples: Samples, way: str, name: str) -> list[float]:
    """Return one phase of one way in every repetition."""
    return [outcome.phases[name] for outcome in samples[way]]


def phases(samples: Samples) -> dict[str, dict[str, Spread]]:
    """Return the spread of every phase, by way and phase."""
    return {way: {name: spread(phase(samples, way, name)) for name in PHASES} for way in samples}


def ratios(samples: Samples) -> dict[str, Spread]:
    """Return every ratio of :data:`RATIOS` whose two ways were measured."""
    return {
        name: ratio(phase(samples, above, what), phase(samples, below, what))
        for name, (above, below, what) in RATIOS.items()
        if above in samples and below in samples
    }


def checks(samples: Samples) -> dict[str, bool]:
    """Return what must hold for the times to mean anything, by a sentence each."""
    first = samples[COLD][0]
    compiled = [*samples[COLD], *samples[WARM]]
    found = {
        "losses and gradient norms of cold and warm runs are equal bit for bit": all(
            losses.same_bits(outcome, first) for outcome in compiled
        ),
        f"losses of eager runs are equal within {TOLERANCE:.0e}": (
            difference(samples, EAGER) <= TOLERANCE
        ),
    }
    for whose, ways in (("GraphPP", GRAPH_PP_WAYS), ("torchtitan's blocks", BLOCK_WAYS)):
        theirs = [way for way in ways if way in samples]
        if theirs:
            found[f"losses of {whose} are equal within {TOLERANCE:.0e}"] = all(
                difference(samples, way) <= TOLERANCE for way in theirs
            )
    return found


def difference(samples: Samples, way: str) -> float:
    """Return the largest relative difference between losses of ``way`` and of a cold run."""
    first = samples[COLD][0]
    return max(losses.difference(outcome, first) for outcome in samples[way])
