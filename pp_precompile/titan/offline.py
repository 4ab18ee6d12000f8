"""Build every stage of a job in one process, without a cluster and without weights.

A fake process group of the job's size stands in for the ranks; the model stays on meta.
"""

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.config.override import apply_overrides
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as dist_utils
from torchtitan.tools import utils

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.manifest import Manifest, Variant
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.columns import alike, merged
from pp_precompile.runtime.job import checked_manifest
from pp_precompile.runtime.sinks import StoreSink
from pp_precompile.stage import private_torch
from pp_precompile.stage.parallel import compile_stages_in
from pp_precompile.stage.pool import Pool
from pp_precompile.stage.portable import register_logical_groups
from pp_precompile.stage.programs import Progress, TracedStage, compile_stages
from pp_precompile.stage.surroundings import Surroundings, describe_surroundings
from pp_precompile.store.store import Store
from pp_precompile.titan import private_titan
from pp_precompile.titan.front_end import describe, runs_graph_pp
from pp_precompile.titan.job import Job
from pp_precompile.titan.stages import parallel_arguments, parallel_stage
from pp_precompile.titan.supported import check_supported
from pp_precompile.titan.worker import imported_by, prepare

_CUT_WITHIN = ("tp", "ep")
"""The mesh dimensions along which programs themselves may take their piece of a whole tensor.

Data-parallel ranks differ in their shards alone.
"""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """What a build reports: stages as they are traced, programs as they start and end."""

    traced: Callable[[int, int], None] = lambda stage, programs: None
    started: Callable[[int, str], None] = lambda stage, role: None
    done: Callable[[Progress], None] = lambda progress: None


def build(
    config: Any, store: Store, listener: Listener | None = None, *, jobs: int = 1
) -> Manifest:
    """Compile every stage of the job that ``config`` describes, and publish the build.

    Programs that the store holds already are reused, so that a build that was interrupted goes on
    where it stopped.

    Args:
        config: torchtitan's configuration.
        store: gets the build.
        listener: hears what is done; with several jobs also from other threads, one at a time.
        jobs: with more than one, programs are compiled by as many processes, while this one traces.
            What is stored is the same. They start with a fresh interpreter, so a script that calls
            this needs the usual ``if __name__ == "__main__":``.

    Raises:
        PrecompileError: for a job that cannot be built or a store that cannot be written.
    """
    listener = listener or Listener()
    _check_jobs(config, jobs)
    store.check_writable()
    sink = StoreSink(store)
    with Pool(jobs) if jobs > 1 else contextlib.nullcontext() as pool:

        def compiled(job: Job, model: nn.Module) -> tuple[StageRecord, ...]:
            stages = trace_stages(job, model, listener)
            if pool is None:
                traced = list(stages)
                entries = compile_stages(traced, sink, started=listener.started, done=listener.done)
            else:
                imports = partial(prepare, imported_by(job, model))
                surroundings = describe_surroundings(job.meshes(), imports)
                traced, entries = _compile_in(pool, surroundings, stages, sink, listener)
            return tuple(stage.record(entries) for stage in traced)

        manifest = describe_build(config, compiled)
    store.builds.publish(manifest)
    return manifest


def _check_jobs(config: Any, jobs: int) -> None:
    """GraphPP's passes are applied where its graphs were traced."""
    if jobs > 1 and runs_graph_pp(config):
        raise UsageError(
            "PPC002",
            "GraphPP's programs are compiled in one process",
            expected="1 job",
            found=f"{jobs} jobs",
            hint="leave out --jobs, or use --compile.precompile_engine stage",
        )


def _compile_in(
    pool: Pool,
    surroundings: Surroundings,
    stages: Iterable[TracedStage],
    sink: StoreSink,
    listener: Listener,
) -> tuple[list[TracedStage], dict[Digest, ProgramEntry]]:
    """Return the stages, and the entries of their programs, compiled while tracing goes on."""
    traced: list[TracedStage] = []

    def one_by_one() -> Iterator[TracedStage]:
        for stage in stages:
            traced.append(stage)
            yield stage

    pool.warm_up(surroundings)
    entries = compile_stages_in(
        pool, surroundings, one_by_one(), sink, started=listener.started, done=listener.done
    )
    return traced, entries


def describe_build(
    config: Any, records: Callable[[Job, nn.Module], tuple[StageRecord, ...]]
) -> Manifest:
    """Return the manifest of the job that ``config`` describes, for all ranks.

    Args:
        config: torchtitan's configuration.
        records: describes all stages of a job and its meta model as one rank has them. It is
            called for one rank of each group that may need programs of its own: ranks with shards
            of other sizes, and, if the first and the last rank do not trace the same, ranks with
            another coordinate along ``tp`` or ``ep``.

    Raises:
        PrecompileError: see :func:`offline_job`, and for stages that do not fit together.
    """
    pristine = copy.deepcopy(config)
    with offline_job(config) as (job, model):
        known = {0: records(job, model)}

    def of(column: int) -> tuple[StageRecord, ...]:
        if column not in known:
            with offline_job(copy.deepcopy(pristine), rank=column) as (other, model):
                known[column] = records(other, model)
        return known[column]

    groups = alike(job.mesh, known[0])
    last = job.mesh.columns - 1
    if any(job.mesh.size(dim) > 1 for dim in _CUT_WITHIN) and of(last) != known[0]:
        groups = alike(job.mesh, known[0], apart=_CUT_WITHIN)
    first, *others = merged(Variant(columns=columns, stages=of(columns[0])) for columns in groups)
    return checked_manifest(job, first.stages, tuple(others))


def trace_stages(job: Job, model: nn.Module, listener: Listener) -> Iterator[TracedStage]:
    """Trace every stage of an :func:`offline_job`, one at a time and in order.

    Raises:
        CompileError: PPC301 if a stage cannot be traced, PPC304 if it is not portable.
    """
    register_logical_groups(job.meshes())
    arguments = parallel_arguments(job)
    for indices in job.traced_together:
        modules = {i: parallel_stage(job, model, i, arguments) for i in indices}
        for index, stage in job.trace_all(modules).items():
            listener.traced(index, len(stage.keyed))
            yield stage


@contextlib.contextmanager
def offline_job(config: Any, *, rank: int = 0) -> Iterator[tuple[Job, nn.Module]]:
    """Enter a fake job of the configuration's size as global ``rank``.

    Yields the job and its model on meta.

    Raises:
        PrecompileError: for a configuration that cannot work, or if a process group exists.
    """
    private_torch.check_version()
    private_titan.check_version()
    check_supported(config)
    world_size = _world_size(config)
    os.environ.setdefault("LOCAL_RANK", "0")
    dist.init_process_group("fake", rank=rank, world_size=world_size)
    try:
        yield _describe(config, world_size)
    finally:
        dist.destroy_process_group()


def _describe(config: Any, world_size: int) -> tuple[Job, nn.Module]:
    """Repeat, in its order, what the trainer does before it splits the model."""
    parallel_dims = ParallelDims.from_config(config.parallelism, world_size)
    parallel_dims.build_mesh()
    device = utils.get_local_device()
    dist_utils.set_spmd_backend(config.parallelism.spmd_backend)
    dist_utils.set_determinism(parallel_dims, device, config.debug, distinct_seed_mesh_dims=["pp"])
    model_config = config.model_spec.model
    model_config.update_from_config(config=config)
    if config.override.imports:
        apply_overrides(config.override, config)
    dtype = TORCH_DTYPE_MAP[config.training.dtype]
    with torch.device("meta"), utils.set_default_dtype(dtype):
        model = model_config.build()
    job = describe(config, model=model, parallel_dims=parallel_dims, device=device)
    return job, model


def _world_size(config: Any) -> int:
    """Return the job's number of ranks: ``$WORLD_SIZE``, else the product of the degrees.

    A data-parallel shard degree of -1 (the rest of the ranks) then stands for 1.
    """
    parallelism = config.parallelism
    fixed = (
        parallelism.pipeline_parallel_degree
        * parallelism.data_parallel_replicate_degree
        * parallelism.tensor_parallel_degree
        * parallelism.context_parallel_degree
    )
    given = os.environ.get("WORLD_SIZE")
    world_size = int(given) if given else fixed * max(parallelism.data_parallel_shard_degree, 1)
    shard = parallelism.data_parallel_shard_degree
    if world_size % fixed != 0 or (shard > 0 and world_size != fixed * shard):
        raise UsageError(
            "PPC001",
            "the parallel degrees do not make up the number of ranks",
            expected=f"{fixed * shard} ranks" if shard > 0 else f"a multiple of {fixed} ranks",
            found=f"{world_size} ranks",
            hint="change the degrees, or unset WORLD_SIZE",
        )
    return world_size
