"""The job that is measured, and the ways to start it."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks import launch
from benchmarks.front_ends import STAGE, FrontEnd
from benchmarks.hosts import bare_host, building_host
from benchmarks.outcome import Outcome
from benchmarks.places import Places

STRICT = ("--compile.precompile_policy", "strict")
"""Refuse to compile: a warm run that would have to ends with an error instead."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A torchtitan job on this machine: ``degree`` pipeline ranks, each ``shard`` times."""

    module: str
    config: str
    degree: int
    steps: int
    shard: int = 1
    """Ranks over which simple_fsdp shards parameters."""
    seed: int = 42
    schedule: str | None = None
    """The pipeline schedule; without one that of the configuration."""
    front_end: FrontEnd = STAGE
    """How it comes by its programs."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.degree * self.shard

    def arguments(self) -> list[str]:
        """Return what every way of starting the job has in common."""
        name = self.schedule
        return [
            *("--module", self.module, "--config", self.config),
            *("--parallelism.pipeline_parallel_degree", str(self.degree)),
            *("--parallelism.data_parallel_shard_degree", str(self.shard)),
            *("--training.steps", str(self.steps), "--debug.seed", str(self.seed)),
            *(() if name is None else ("--parallelism.pipeline_parallel_schedule", name)),
        ]

    def precompiled(self, store: Path, *more: str) -> list[str]:
        """Return the arguments to run from ``store``."""
        words = (*self.front_end.precompile, "--compile.precompile_artifact_dir", str(store))
        return [*self.arguments(), *words, *more]

    def eager(self) -> list[str]:
        """Return the arguments of the same job without compilation."""
        return [*self.arguments(), *self.front_end.eager]

    def train(self, words: list[str], host: dict[str, str], folder: Path) -> Outcome:
        """Start the job on all its ranks, with ``words`` as arguments."""
        program = self.front_end.program
        return launch.train(words, host, folder, ranks=self.ranks, program=program)


def build(job: Job, folder: Path, store: Path) -> float:
    """Fill ``store`` on a fresh host with a compiler; returns seconds of wall time.

    That is ``pp-precompile build``, or a first start of the job for a front end without it.
    """
    host = building_host(folder / "host")
    if job.front_end.builds:
        words = [*job.arguments(), *job.front_end.precompile]
        return launch.build(words, host, folder, store=store)
    return job.train(job.precompiled(store), host, folder).phases["wall"]


def cold(job: Job, folder: Path, places: Places) -> Outcome:
    """Train on a fresh host with a compiler and no store: compiles, and fills a store."""
    return job.train(job.precompiled(folder / "store"), building_host(folder / "host"), folder)


def warm(job: Job, folder: Path, places: Places) -> Outcome:
    """Train on a fresh host without a compiler, from a copy of the store in another place."""
    copy = shutil.copytree(places.store, folder / "store")
    return job.train(job.precompiled(Path(copy), *STRICT), bare_host(folder / "host"), folder)


def eager(job: Job, folder: Path, places: Places) -> Outcome:
    """Train the same model, compiling nothing, on a host like a warm one."""
    return job.train(job.eager(), bare_host(folder / "host"), folder)
