"""The schedule of a job as a table, from torch's own schedule classes."""

from typing import Any

from pp_precompile.contract.errors import UsageError, Where
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.schedule_file import ScheduleFile, open_schedule_file
from pp_precompile.graph.check import check_table
from pp_precompile.graph.finding import listed
from pp_precompile.graph.mesh import Placement
from pp_precompile.graph.refuse import refuse
from pp_precompile.runtime.schedules import unrolled
from pp_precompile.titan import private_titan

_NO_PIPELINE = "none"


def schedule_table(
    parallelism: Any, *, local_batch_size: int, stages: int, pp_group: Any
) -> ScheduleTable:
    """Unroll the job's schedule for all pipeline ranks.

    Args:
        parallelism: torchtitan's parallelism section.
        local_batch_size: sequences of one data-parallel rank in one step.
        stages: number of stages over all ranks.
        pp_group: the process group of the ``pp`` mesh dimension, None without one.

    Raises:
        UsageError: PPC003 if the batch does not fit the schedule, or the schedule's file cannot be
            read or is for other numbers; PPC521 to PPC527 if what the file says cannot run.
    """
    degree = parallelism.pipeline_parallel_degree
    if degree == 1:
        return ScheduleTable(
            name=_NO_PIPELINE,
            csv=None,
            microbatches=1,
            microbatch_size=local_batch_size,
            stages_of_rank=((0,),),
            actions=(("0F0", "0B0"),),
        )
    size = parallelism.pipeline_parallel_microbatch_size
    check_microbatches(local_batch_size, size, stages)
    name = parallelism.pipeline_parallel_schedule
    microbatches = local_batch_size // size
    placement = tuple(
        private_titan.stages_of_rank(rank, degree, name, stages) for rank in range(degree)
    )
    file = schedule_file(parallelism)
    if file is None:
        return ScheduleTable(
            name=name,
            csv=None,
            microbatches=microbatches,
            microbatch_size=size,
            stages_of_rank=placement,
            actions=unrolled(name, microbatches, placement, pp_group),
        )
    _check_file(file, name, microbatches, placement)
    table = file.table(name, microbatch_size=size, stages_of_rank=placement)
    path = parallelism.pipeline_parallel_schedule_csv
    refuse(check_table(table), f"the schedule file {path}", error=UsageError)
    return table


def schedule_file(parallelism: Any) -> ScheduleFile | None:
    """Read the schedule file that the job names; None if it names none.

    Raises:
        UsageError: PPC003 if it is no schedule, or cannot be read.
    """
    path = parallelism.pipeline_parallel_schedule_csv
    if not path:
        return None
    hint = "correct --parallelism.pipeline_parallel_schedule_csv"
    return open_schedule_file(path, hint=hint)


def _check_file(file: ScheduleFile, name: str, microbatches: int, placement: Placement) -> None:
    """Refuse a file for other ranks, stages or microbatches than the job's.

    torchtitan takes the number of stages and their placement from the named schedule also when a
    file is given, so a file with another placement would run on the wrong ranks.
    """
    if len(file.actions) != len(placement):
        raise _misfit(
            "PPC003",
            "number of ranks",
            f"{len(placement)} rows",
            f"{len(file.actions)} rows",
            "take a file for the job's pipeline degree",
        )
    placed = tuple(tuple(sorted(held)) for held in placement)
    for rank, (wanted, found) in enumerate(zip(placed, file.stages_of_rank, strict=True)):
        if wanted != found:
            raise _misfit(
                "PPC527",
                "placement of stages",
                f"stages {listed(wanted)} on rank {rank}, where {name} puts them",
                f"stages {listed(found)}",
                "--parallelism.pipeline_parallel_schedule says how stages lie: choose one that "
                "places them as the file does (ZBVZeroBubble for a V, Interleaved1F1B for loops, "
                "1F1B for one stage a rank)",
                rank,
            )
    if file.microbatches != microbatches:
        raise _misfit(
            "PPC003",
            "number of microbatches",
            f"{microbatches} (local batch size / microbatch size)",
            str(file.microbatches),
            "change --training.local_batch_size or take a file for this number",
        )


def _misfit(
    code: str, what: str, expected: str, found: str, hint: str, rank: int | None = None
) -> UsageError:
    return UsageError(
        code,
        f"the schedule file has another {what} than the job",
        where=Where(rank=rank, field="parallelism.pipeline_parallel_schedule_csv"),
        expected=expected,
        found=found,
        hint=hint,
    )


def check_microbatches(local_batch_size: int, microbatch_size: int, stages: int) -> None:
    """Refuse a batch that cannot be cut into enough microbatches.

    Raises:
        UsageError: PPC003.
    """
    if microbatch_size < 1 or local_batch_size % microbatch_size != 0:
        raise UsageError(
            "PPC003",
            "the local batch cannot be cut into whole microbatches",
            expected="training.local_batch_size as a multiple of "
            "parallelism.pipeline_parallel_microbatch_size",
            found=f"local batch {local_batch_size}, microbatch {microbatch_size}",
            hint="change one of the two",
        )
    count = local_batch_size // microbatch_size
    if count < stages:
        raise UsageError(
            "PPC003",
            "there are fewer microbatches than stages",
            expected=f"at least {stages} microbatches",
            found=f"{count} (local batch {local_batch_size} / microbatch {microbatch_size})",
            hint="raise --training.local_batch_size or lower "
            "--parallelism.pipeline_parallel_microbatch_size",
        )
