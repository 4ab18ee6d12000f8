"""torchtitan's GraphPP, to compare with: how it is started, and what it refuses."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks import launch
from benchmarks.front_ends import GRAPH_PP_ARGUMENTS
from benchmarks.hosts import building_host
from benchmarks.job import Job
from benchmarks.outcome import Outcome
from benchmarks.places import Places
from benchmarks.process import CommandError

GRAPH_PP_CACHE, MEGA_CACHE = "graph_pp_warm_cache", "mega_cache"

SAVE, LOAD = "PP_PRECOMPILE_BENCHMARK_SAVE", "PP_PRECOMPILE_BENCHMARK_LOAD"
"""Folders for the ranks' cache artifacts; see :mod:`benchmarks.recorded_graph_pp`."""

PROGRAM = "benchmarks.recorded_graph_pp"

_REFUSAL = re.compile(r"ValueError: (GraphPP .+)")


class RefusedError(Exception):
    """GraphPP says that it does not run this job; the text is its reason."""


def refusal(output: str) -> str | None:
    """Return GraphPP's own words if the output says that it refuses the job, else None."""
    match = _REFUSAL.search(output)
    return match[1].strip() if match else None


@contextlib.contextmanager
def refusals(folder: Path) -> Iterator[None]:
    """Turn a failed run in ``folder`` into a :class:`RefusedError` if GraphPP refused the job."""
    try:
        yield
    except CommandError:
        reason = refusal((folder / launch.OUTPUT).read_text(errors="replace"))
        if reason is None:
            raise
        raise RefusedError(reason) from None


def fill(job: Job, folder: Path, places: Places) -> Outcome:
    """Train once with empty caches, and leave Inductor's cache and its artifacts.

    Raises:
        RefusedError: if GraphPP does not run this job.
    """
    places.artifacts.mkdir(parents=True)
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(places.cache), SAVE: str(places.artifacts)}
    with refusals(folder):
        return _train(job, folder, kept)


def warm_cache(job: Job, folder: Path, places: Places) -> Outcome:
    """Train with GraphPP in the place where it ran before: Inductor finds what it compiled."""
    return _train(job, folder, {"TORCHINDUCTOR_CACHE_DIR": str(places.cache)})


def mega_cache(job: Job, folder: Path, places: Places) -> Outcome:
    """Train with GraphPP on a fresh host that was given the artifacts of an earlier run."""
    return _train(job, folder, {LOAD: str(places.artifacts)})


def _train(job: Job, folder: Path, kept: dict[str, str]) -> Outcome:
    host = building_host(folder / "host") | kept
    words = [*job.arguments(), *GRAPH_PP_ARGUMENTS]
    return launch.train(words, host, folder, ranks=job.ranks, program=PROGRAM)
