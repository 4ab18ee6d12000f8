"""A measurement of the store as data: figures, ratios and checks from all repetitions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.spread import Spread, ratio, spread
from benchmarks.store_contention import PHASES, Crowd
from benchmarks.store_throughput import ACTIONS, STORE, WAYS, Blobs
from benchmarks.store_upkeep import Upkeep

FORMAT = 1
"""Raised when a field changes its meaning; new fields do not count."""

BENCHMARK = "store"
"""Tells this benchmark's files from those of others."""

COMPARED = (
    ("fsck", "git_fsck"),
    ("fsck", "sha256sum"),
    ("fsck", "references"),
    ("gc", "git_gc"),
    ("gc", "git_prune"),
    ("gc", "references"),
)
"""Upkeep whose times are put into a ratio: numerator, denominator."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that was measured; each of a pair of crowds does the same alone and together."""

    blobs: tuple[Blobs, ...]
    crowds: tuple[tuple[Crowd, Crowd], ...]
    upkeep: Upkeep

    def ratios(self) -> Iterator[tuple[str, Spread]]:
        """Yield every ratio by its name; each divides samples of the same repetition."""
        for blobs in self.blobs:
            for action in ACTIONS:
                for way in WAYS:
                    if way != STORE:
                        pair = (blobs.seconds[way][action], blobs.seconds[STORE][action])
                        yield f"{way}/{STORE} {action} {label(blobs.size)}", ratio(*pair)
        for alone, together in self.crowds:
            for phase in PHASES:
                name = f"{together.processes}/{alone.processes} {phase} {which(alone)}"
                yield name, ratio(together.rates[phase], alone.rates[phase])
        for above, below in COMPARED:
            yield f"{above}/{below}", ratio(self.upkeep.seconds[above], self.upkeep.seconds[below])

    def checks(self) -> dict[str, bool]:
        """Return what must hold for the times to mean anything, by a sentence each."""
        crowds = [crowd for pair in self.crowds for crowd in pair]
        return {
            "every load in every way returned the bytes that were published": all(
                all(blobs.same.values()) for blobs in self.blobs
            ),
            "no process read anything torn": not any(sum(crowd.torn) for crowd in crowds),
            "processes did read what others were publishing": all(
                all(together.glimpses) for _, together in self.crowds
            ),
            "afterwards each blob was there once, whole, and no leftovers": all(
                all(crowd.complete) for crowd in crowds
            ),
            "fsck counted every build and blob and found nothing": self.upkeep.sound,
            "gc deleted what nothing needed, all of it and nothing else": self.upkeep.exact,
            "after gc, fsck found the one blob with a flipped bit and nothing else": (
                self.upkeep.found_damage
            ),
            "git deleted as many objects": self.upkeep.git_agrees,
        }


def label(size: int) -> str:
    """Return a size as text: ``64 KiB``."""
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def which(crowd: Crowd) -> str:
    """Return which blobs the processes of a crowd use."""
    return "same blobs" if crowd.load.same else "different blobs"


def as_dict(machine: Mapping[str, object], measured: Measured) -> dict[str, Any]:
    """Return everything that was measured; times are in seconds, rates in operations a second."""
    upkeep = measured.upkeep
    return {
        "benchmark": BENCHMARK,
        "format": FORMAT,
        "machine": dict(machine),
        "throughput": [_throughput(blobs) for blobs in measured.blobs],
        "contention": [_crowd(crowd) for pair in measured.crowds for crowd in pair],
        "upkeep": {
            "builds": len(upkeep.filled.builds),
            "kept_builds": upkeep.kept_builds,
            "blobs": len(upkeep.blobs),
            "deleted_blobs": len(upkeep.deleted),
            "blob_bytes": upkeep.blob_bytes,
            "manifest_bytes": upkeep.manifest_bytes,
            "seconds": {name: _spread(samples) for name, samples in upkeep.seconds.items()},
        },
        "ratios": {name: found.as_dict() for name, found in measured.ratios()},
        "checks": measured.checks(),
    }


def _throughput(blobs: Blobs) -> dict[str, Any]:
    return {
        "size": blobs.size,
        "count": blobs.count,
        "seconds": {
            way: {action: _spread(samples) for action, samples in actions.items()}
            for way, actions in blobs.seconds.items()
        },
    }


def _crowd(crowd: Crowd) -> dict[str, Any]:
    return {
        **crowd.load._asdict(),
        "processes": crowd.processes,
        "rates": {name: _spread(samples) for name, samples in crowd.rates.items()},
        "slowest": {name: _spread(samples) for name, samples in crowd.slowest.items()},
        "torn": crowd.torn,
        "glimpses": crowd.glimpses,
        "complete": crowd.complete,
    }


def _spread(samples: list[float]) -> dict[str, object]:
    return spread(samples).as_dict()
