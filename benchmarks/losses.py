"""Compare the losses that runs of one job report."""

from benchmarks.outcome import Outcome


def same_bits(one: Outcome, other: Outcome) -> bool:
    """Tell whether both runs report the same losses and gradient norms, bit for bit."""
    return one.losses == other.losses and one.grad_norms == other.grad_norms


def difference(one: Outcome, other: Outcome) -> float:
    """Return the largest relative difference between losses of the same step.

    Raises:
        ValueError: if the runs have not equally many steps.
    """
    pairs = zip(numbers(one), numbers(other), strict=True)
    return max(abs(a - b) / abs(b) for a, b in pairs)


def numbers(outcome: Outcome) -> list[float]:
    """Return a run's losses as numbers."""
    return [float.fromhex(text) for text in outcome.losses]


def printed(outcome: Outcome) -> str:
    """Return a run's losses with the five digits that torchtitan prints."""
    return ", ".join(f"{loss:.5f}" for loss in numbers(outcome))
