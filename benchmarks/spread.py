"""Median and spread of repeated measurements, and of ratios between them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Repetitions of one measurement in the order they were made."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample (the mean of the two in the middle)."""
        return statistics.median(self.samples)

    @property
    def low(self) -> float:
        """The smallest sample."""
        return min(self.samples)

    @property
    def high(self) -> float:
        """The largest sample."""
        return max(self.samples)

    def as_dict(self) -> dict[str, object]:
        """Return median, spread and samples, as JSON can hold them."""
        return {
            "median": self.median,
            "min": self.low,
            "max": self.high,
            "samples": list(self.samples),
        }

    def text(self, unit: str = "") -> str:
        """Return ``median (min–max)`` with three significant digits and at most three decimals."""
        low, high = _digits(self.low), _digits(self.high)
        shown = f"{_digits(self.median)}{unit}"
        return shown if len(self.samples) == 1 else f"{shown} ({low}–{high})"


def spread(samples: Sequence[float]) -> Spread:
    """Return the spread of ``samples``.

    Raises:
        ValueError: if there are none.
    """
    if not samples:
        raise ValueError("no samples")
    return Spread(samples=tuple(samples))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Return the ratios of samples made in the same repetition.

    They ran next to each other, so what disturbed one repetition disturbed both.

    Raises:
        ValueError: if there are not equally many, or none.
    """
    pairs = zip(numerators, denominators, strict=True)
    return spread([above / below for above, below in pairs])


def _digits(value: float) -> str:
    decimals = 0 if value >= 99.5 else 1 if value >= 9.95 else 2 if value >= 0.995 else 3
    return f"{value:.{decimals}f}"
