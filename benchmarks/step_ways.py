"""The ways to run a pipeline schedule whose steps are measured, and how each is started."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from benchmarks import graph_pp as graphs
from benchmarks import launch
from benchmarks.front_ends import GRAPH_PP_ARGUMENTS
from benchmarks.hosts import bare_host, building_host
from benchmarks.job import STRICT, Job
from benchmarks.places import Places
from benchmarks.steps import Steps, read_steps

OURS, GRAPH_PP, EAGER, EAGER_PLAIN = "ours", "graph_pp", "eager", "eager_plain"

COMPILED = (OURS, GRAPH_PP)
"""Ways that run compiled programs, so that it can be told what is around them."""

SCHEDULES = (
    "GPipe",
    "1F1B",
    "LoopedBFS",
    "Interleaved1F1B",
    "InterleavedZeroBubble",
    "ZBVZeroBubble",
    "DualPipeV",
)

WARMUP = 3
"""Steps before the first one that counts; the first of all compiles, where something does."""

PLAIN_MODULE = "benchmarks.plain_llama3"


def ours(job: Job, folder: Path, places: Places) -> Steps:
    """Train from the store, on a host without a compiler."""
    words = job.precompiled(places.store, *STRICT)
    return _train(job, words, bare_host(folder / "host"), folder)


def graph_pp(job: Job, folder: Path, places: Places) -> Steps:
    """Train with torchtitan's GraphPP, compiled whole by Inductor in the first step.

    Raises:
        RefusedError: if it does not run the job's schedule.
    """
    host = building_host(folder / "host") | {"TORCHINDUCTOR_CACHE_DIR": str(places.cache)}
    with graphs.refusals(folder):
        return _train(job, [*job.arguments(), *GRAPH_PP_ARGUMENTS], host, folder)


def eager(job: Job, folder: Path, places: Places) -> Steps:
    """Train through torchtitan's own pipeline, compiling nothing."""
    return _train(job, job.eager(), bare_host(folder / "host"), folder)


def eager_plain(job: Job, folder: Path, places: Places) -> Steps:
    """Train like :func:`eager`, with plain tensors for parameters."""
    return eager(dataclasses.replace(job, module=PLAIN_MODULE), folder, places)


WAYS: dict[str, Callable[[Job, Path, Places], Steps]] = {
    OURS: ours,
    GRAPH_PP: graph_pp,
    EAGER: eager,
    EAGER_PLAIN: eager_plain,
}
"""The ways by name: called with a folder of their own and the places that they share."""


def build(job: Job, folder: Path, places: Places) -> float:
    """Build the job's stages into the store, which keeps what it has; returns seconds."""
    words = [*job.arguments(), "--compile.precompile"]
    host = building_host(folder / "host")
    return launch.build(words, host, folder, store=places.store)


def _train(job: Job, words: list[str], host: dict[str, str], folder: Path) -> Steps:
    outcome = launch.train(
        words, host, folder, ranks=job.degree, program="benchmarks.recorded_steps"
    )
    reports = folder / launch.REPORTS
    return read_steps(reports, outcome=outcome, ranks=job.degree, warmup=WARMUP)
