"""Start a job in several ways, again and again, next to each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.job import Job
from benchmarks.outcome import Outcome
from benchmarks.places import Places
from benchmarks.ways import Way

Samples = Mapping[str, Sequence[Outcome]]
"""The runs of each way, in the order of the repetitions."""


def order(ways: Sequence[str], repeat: int) -> Iterator[tuple[int, str]]:
    """Yield (repetition, way), the ways rotated by one each time.

    So none always runs first or after the same other one, and a machine that slows down in the
    course of a measurement slows all of them down.
    """
    for repetition in range(repeat):
        for way in rotated(ways, repetition):
            yield repetition, way


def rotated(ways: Sequence[str], times: int) -> Sequence[str]:
    """Return ``ways`` with the first one moved to the end, ``times`` times."""
    turn = times % len(ways)
    return (*ways[turn:], *ways[:turn])


def measure(
    job: Job,
    folder: Path,
    places: Places,
    ways: Mapping[str, Way],
    *,
    repeat: int,
    done: Callable[[int, str, Outcome], None],
) -> Samples:
    """Run the job ``repeat`` times in every way, each time on a fresh host.

    Args:
        job: what to run.
        folder: gets a folder for every run, with its output.
        places: a built store for the warm runs, and the caches of those that need one.
        ways: the ways to start the job, by name.
        repeat: the number of repetitions.
        done: called after every run.

    Raises:
        CommandError: if a run fails or hangs.
    """
    samples: dict[str, list[Outcome]] = {way: [] for way in ways}
    for repetition, way in order(list(ways), repeat):
        outcome = ways[way](job, folder / f"{way}_{repetition}", places)
        samples[way].append(outcome)
        done(repetition, way, outcome)
    return samples
