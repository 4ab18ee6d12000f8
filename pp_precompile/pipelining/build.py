"""Compile all stages of a pipeline in one process, without ranks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.pipelining import of_modules, of_pipe
from pp_precompile.pipelining.job import PipelineJob, microbatch_size
from pp_precompile.pipelining.mesh import PIPELINE, mesh_spec
from pp_precompile.pipelining.of_pipe import AnyPipe, is_pipe
from pp_precompile.pipelining.part import Part
from pp_precompile.pipelining.table import schedule_table
from pp_precompile.runtime.job import checked_manifest
from pp_precompile.runtime.sinks import StoreSink
from pp_precompile.stage import private_torch
from pp_precompile.stage.programs import compile_stages
from pp_precompile.store.store import open_store


def build(
    stages: AnyPipe | Sequence[nn.Module],
    *,
    schedule: str | Path,
    microbatches: int,
    store: str | Path,
    ranks: int | None = None,
    mesh: Mapping[str, int] | None = None,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    keywords: Sequence[str] = (),
    device: torch.device | str = "cpu",
    key: str | None = None,
) -> Manifest:
    """Compile every stage into ``store``, which keeps the programs that it has.

    Call it in a process without process groups.

    Args:
        stages: what ``torch.distributed.pipelining.pipeline()`` returned, or all stages' modules in
            order. Weights do not matter, and may be on meta.
        schedule: the name of a schedule of torch (``1F1B``), or the path of a CSV file.
        microbatches: microbatches in a step.
        store: the store's folder or URL.
        ranks: pipeline ranks; as many as stages if None.
        mesh: instead of ``ranks``, the sizes of the job's mesh dimensions by name: ``pp``, and
            those of replicas of the pipeline, such as ``{"dp_replicate": 2, "pp": 4}``.
        args: for modules: positional inputs of the first one, for one microbatch (meta will do).
        kwargs: for modules: keyword inputs of all of them, for one microbatch.
        keywords: for a pipe: which of its inputs will be passed by keyword.
        device: the type of device that the stages will run on.
        key: names the model with everything that its programs depend on. With it ranks trace
            nothing to find this build; without it they trace their stages, and cannot be wrong.

    Returns:
        the manifest of the build.

    Raises:
        PrecompileError: if the stages cannot be compiled or stored; see docs/errors.md.
    """
    private_torch.check_version()
    where = torch.device(device)
    parts = _parts(stages, args, kwargs, keywords, where)
    job_mesh = _mesh(mesh, ranks, len(parts))
    ranks = job_mesh.size(PIPELINE)
    dist.init_process_group("fake", rank=0, world_size=ranks)
    try:
        table = schedule_table(
            schedule,
            ranks=ranks,
            stages=len(parts),
            microbatches=microbatches,
            size=microbatch_size(parts),
            group=dist.group.WORLD,
        )
        job = PipelineJob(
            parts={part.index: part for part in parts},
            mesh=job_mesh,
            schedule=table,
            device=where,
            key=key,
        )
        job.stage_factors = job.own_factors()
        return _published(job, str(store))
    finally:
        dist.destroy_process_group()


def _mesh(mesh: Mapping[str, int] | None, ranks: int | None, stages: int) -> MeshSpec:
    if mesh is None:
        return mesh_spec({PIPELINE: stages if ranks is None else ranks})
    if ranks is not None:
        raise UsageError(
            "PPC002",
            "the number of pipeline ranks is given twice",
            expected="ranks= or mesh=",
            found=f"ranks={ranks} and mesh={dict(mesh)}",
            hint=f"leave ranks= out: the mesh has it as {PIPELINE}",
        )
    return mesh_spec(mesh)


def _parts(
    stages: AnyPipe | Sequence[nn.Module],
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    keywords: Sequence[str],
    device: torch.device,
) -> list[Part]:
    if is_pipe(stages):
        return of_pipe.parts(stages, keywords=keywords, device=device)
    if args is None:
        raise UsageError(
            "PPC002",
            "nothing says what the first stage is called with",
            expected="args=, an example of the inputs of one microbatch",
            found="none",
            hint="pass args=(x,) with tensors on meta",
        )
    modules = list(cast("Sequence[nn.Module]", stages))
    return of_modules.chain(modules, args, kwargs or {}, device=device)


def _published(job: PipelineJob, location: str) -> Manifest:
    opened = open_store(location, create=True)
    opened.check_writable()
    traced = [job.trace(part.named, index) for index, part in job.parts.items()]
    entries = compile_stages(traced, StoreSink(opened))
    manifest = checked_manifest(job, tuple(stage.record(entries) for stage in traced))
    opened.builds.publish(manifest)
    return manifest
