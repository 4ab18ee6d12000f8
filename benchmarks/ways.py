"""The ways to start a job whose starts are measured, by name."""

from collections.abc import Callable
from pathlib import Path

from benchmarks import block_compile, graph_pp, job
from benchmarks.block_compile import BLOCK_CACHE, BLOCK_JIT
from benchmarks.graph_pp import GRAPH_PP_CACHE, MEGA_CACHE
from benchmarks.job import Job
from benchmarks.outcome import Outcome
from benchmarks.places import Places

COLD, WARM, EAGER = "cold_jit", "warm_fresh_host", "eager"

Way = Callable[[Job, Path, Places], Outcome]
"""Starts a job once, with a folder of its own, and returns what it reported."""

WAYS: dict[str, Way] = {COLD: job.cold, WARM: job.warm, EAGER: job.eager}
"""What is measured for every job."""

GRAPH_PP_WAYS: dict[str, Way] = {
    GRAPH_PP_CACHE: graph_pp.warm_cache,
    MEGA_CACHE: graph_pp.mega_cache,
}
"""What is measured beside it where GraphPP runs the job."""

BLOCK_WAYS: dict[str, Way] = {
    BLOCK_JIT: block_compile.jit,
    BLOCK_CACHE: block_compile.warm_cache,
}
"""What is measured beside it for torchtitan's core models."""
