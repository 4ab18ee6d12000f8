"""Give a rank its stages: loaded from the store, or compiled and stored."""

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from pp_precompile.contract import encoding
from pp_precompile.contract.errors import AgreementError, UsageError, Where
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.pipelining import of_modules, of_pipe
from pp_precompile.pipelining.job import PipelineJob, microbatch_size
from pp_precompile.pipelining.mesh import JobRanks, job_ranks
from pp_precompile.pipelining.of_pipe import AnyPipe, is_pipe
from pp_precompile.pipelining.part import Part
from pp_precompile.pipelining.table import schedule_table
from pp_precompile.runtime.acquire import acquire
from pp_precompile.runtime.agreement import Agreement
from pp_precompile.runtime.job import Policy
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.pipeline_stage import PrecompiledStage
from pp_precompile.runtime.stage_forward import install
from pp_precompile.runtime.verdict import EXCHANGE_SECONDS
from pp_precompile.stage import private_torch

_starts: collections.Counter[tuple[int, ...]] = collections.Counter()
"""Counts the starts of each set of ranks, which is the same on all of them."""


def stages(
    pipe_or_modules: AnyPipe | Mapping[int, nn.Module],
    *,
    schedule: str | Path,
    microbatches: int,
    store: str | Path,
    num_stages: int | None = None,
    mesh: DeviceMesh | None = None,
    args: Mapping[int, Sequence[Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    keywords: Sequence[str] = (),
    device: torch.device | str | None = None,
    policy: Policy = "auto",
    trusted_keys: Sequence[str] = (),
    key: str | None = None,
) -> list[PrecompiledStage]:
    """Return this rank's stages as torch's ``PipelineStage``, in the order of their indices.

    Every rank of the mesh calls it, at the same point of the program and with the same
    arguments but for ``pipe_or_modules`` and ``args``. The modules must have their weights, on
    ``device``; their ``forward`` is replaced.

    Args:
        pipe_or_modules: what ``pipeline()`` returned, or this rank's modules by stage index.
        schedule: the name of a schedule of torch (``1F1B``), or the path of a CSV file.
        microbatches: microbatches in a step.
        store: the store's folder or URL.
        num_stages: stages over all ranks; for modules.
        mesh: of the job's ranks, with a dimension named ``pp`` along which the ranks of a pipeline
            lie; the others have replicas of it that train on other rows. All of them agree, and
            each program is compiled once. A mesh of one dimension is one pipeline; None makes one
            of all ranks.
        args: for modules: positional inputs of each of this rank's, for one microbatch.
        kwargs: for modules: keyword inputs, the same for all stages, for one microbatch.
        keywords: for a pipe: which of its inputs are passed by keyword, on every rank.
        device: of this rank's modules; the CPU if None.
        policy: ``auto`` compiles what is missing and stores it; ``strict`` stops all ranks.
        trusted_keys: files of public keys; one of them must have signed the build.
        key: see :func:`pp_precompile.pipelining.build`.

    Raises:
        PrecompileError: on every rank, if any rank cannot go on; see docs/errors.md.
    """
    private_torch.check_version()
    where = torch.device(device or "cpu")
    ranks = job_ranks(mesh)
    group = ranks.pipeline
    agreement = _agreement(ranks)
    with agreement.guard():
        total = _number_of_stages(pipe_or_modules, num_stages)
        parts = _parts(pipe_or_modules, args, kwargs or {}, keywords, where)
        table = schedule_table(
            schedule,
            ranks=dist.get_world_size(group),
            stages=total,
            microbatches=microbatches,
            size=microbatch_size(parts),
            group=group,
        )
        mine = table.stages_of_rank[dist.get_rank(group)]
        if not is_pipe(pipe_or_modules):
            _check_own([part.index for part in parts], sorted(mine))
        own = {part.index: part for part in parts if part.index in mine}
        job = PipelineJob(parts=own, mesh=ranks.mesh, schedule=table, device=where, key=key)
        job.stage_factors = _exchanged(job, agreement)
    acquired = acquire(
        job,
        {index: part.named for index, part in own.items()},
        location=str(store),
        policy=policy,
        agreement=agreement,
        trusted=trusted_keys,
        order=ranks.order,
    )
    return [
        _installed(
            own[index], acquired.stages[index], table, stages=total, device=where, group=group
        )
        for index in sorted(own)
    ]


def _installed(
    part: Part,
    loaded: LoadedStage,
    schedule: ScheduleTable,
    *,
    stages: int,
    device: torch.device,
    group: Any,
) -> PrecompiledStage:
    """Make the module run its programs, and torch's stage of it."""
    forward = install(part.module, loaded)
    forward.bind(part.named, microbatches=schedule.microbatches)
    return PrecompiledStage(
        part.module, forward, loaded.record, stages=stages, device=device, group=group
    )


def stage(
    pipe_or_module: AnyPipe | nn.Module,
    index: int,
    *,
    args: Sequence[Any] | None = None,
    **more: Any,
) -> PrecompiledStage:
    """Return stage ``index``, the only one of this rank; see :func:`stages`.

    ``args`` are the positional inputs of this stage, for a module; all else is as for
    :func:`stages`.

    Raises:
        UsageError: PPC003 if the schedule gives this rank another stage, or several.
    """
    if is_pipe(pipe_or_module):
        made = stages(pipe_or_module, **more)
    else:
        inputs = None if args is None else {index: args}
        made = stages({index: pipe_or_module}, args=inputs, **more)
    held = [one.stage_index for one in made]
    if held != [index]:
        raise UsageError(
            "PPC003",
            f"stage {index} is not all that this rank runs",
            expected=f"stage {index}",
            found=f"stages {held}",
            hint="take them all with pp_precompile.pipelining.stages()",
        )
    return made[0]


def _agreement(ranks: JobRanks) -> Agreement:
    """Return what the mesh's ranks agree through; others have one of their own."""
    name = f"pipelining{_starts[ranks.ranks]}.{'-'.join(map(str, ranks.ranks))}"
    _starts[ranks.ranks] += 1
    store = private_torch.default_store()
    return Agreement(store, ranks.rank, len(ranks.ranks), name=name)


def _number_of_stages(pipe_or_modules: Any, num_stages: int | None) -> int:
    if is_pipe(pipe_or_modules):
        return of_pipe.number_of_stages(pipe_or_modules)
    if num_stages is None:
        raise UsageError(
            "PPC002",
            "nothing says how many stages there are",
            expected="num_stages=, the number over all ranks",
            found="none",
            hint="pass num_stages=",
        )
    return num_stages


def _parts(
    pipe_or_modules: AnyPipe | Mapping[int, nn.Module],
    args: Mapping[int, Sequence[Any]] | None,
    kwargs: Mapping[str, Any],
    keywords: Sequence[str],
    device: torch.device,
) -> list[Part]:
    if is_pipe(pipe_or_modules):
        return of_pipe.parts(pipe_or_modules, keywords=keywords, device=device)
    given, modules = args or {}, cast("Mapping[int, nn.Module]", pipe_or_modules)
    missing = sorted(modules.keys() - given.keys())
    if missing:
        raise UsageError(
            "PPC002",
            f"nothing says what stages {missing} are called with",
            expected="args=, examples of the inputs of one microbatch by stage",
            found=f"those of {sorted(given)}",
            hint="pass args={index: (x,)} with tensors on meta",
        )
    return [
        of_modules.part(index, module, given[index], kwargs, device=device)
        for index, module in sorted(modules.items())
    ]


def _check_own(given: Sequence[int], mine: Sequence[int]) -> None:
    """This rank must have been given exactly the stages that the schedule gives it."""
    if given != mine:
        raise UsageError(
            "PPC003",
            "the schedule gives this rank other stages",
            expected=f"stages {mine}",
            found=f"stages {given}",
            hint="make the modules of these stages on this rank",
        )


def _exchanged(job: PipelineJob, agreement: Agreement) -> dict[str, str]:
    """Return the key factors of all stages: each rank tells those of its own.

    Raises:
        AgreementError: PPC403 if two ranks with the same stage tell different things of it.
    """
    data = agreement.all_gather(
        "stages", encoding.encode(job.own_factors()), timeout=EXCHANGE_SECONDS
    )
    factors: dict[str, str] = {}
    teller: dict[str, int] = {}
    for rank, one in enumerate(data):
        theirs = encoding.decode(one, dict[str, str], what="a rank's stages")
        differs = next((n for n in theirs if factors.get(n, theirs[n]) != theirs[n]), None)
        if differs is not None:
            first = teller[differs]
            raise AgreementError(
                "PPC403",
                f"ranks {first} and {rank} run the same stage, but not with the same model",
                where=Where(field=differs),
                expected=f"{factors[differs]} (rank {first})",
                found=f"{theirs[differs]} (rank {rank})",
                hint="replicas of a pipeline are the same model, cut at the same places",
            )
        factors |= theirs
        teller |= dict.fromkeys(theirs, rank)
    return factors
