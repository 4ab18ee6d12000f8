"""torchtitan's own compilation of each block (``--compile.enable``), to compare with."""

from pathlib import Path

from benchmarks.hosts import building_host
from benchmarks.job import Job
from benchmarks.outcome import Outcome
from benchmarks.places import Places

BLOCK_JIT, BLOCK_CACHE = "block_jit", "block_warm_cache"


def jit(job: Job, folder: Path, places: Places) -> Outcome:
    """Train on a fresh host: blocks are compiled in the first step."""
    return _train(job, folder, {})


def warm_cache(job: Job, folder: Path, places: Places) -> Outcome:
    """Train in the place where the job ran before: Inductor finds what it compiled."""
    return _train(job, folder, {"TORCHINDUCTOR_CACHE_DIR": str(places.cache)})


def _train(job: Job, folder: Path, kept: dict[str, str]) -> Outcome:
    # The first step compiles, and the other ranks wait for it.
    words = [*job.arguments(), "--compile.enable", "--comm.init_timeout_seconds", "900"]
    return job.train(words, building_host(folder / "host") | kept, folder)
