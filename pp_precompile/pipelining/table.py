"""The schedule that a user names, as a table of what each rank does."""

from pathlib import Path
from typing import Any

from torch.distributed.pipelining.schedules import PipelineScheduleMulti

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.schedule_file import open_schedule_file
from pp_precompile.graph.check import check_table
from pp_precompile.graph.mesh import V_SCHEDULES, Placement, loop_placement, v_placement
from pp_precompile.graph.refuse import refuse
from pp_precompile.runtime.private_schedules import get_schedule_class
from pp_precompile.runtime.schedules import unrolled

_FILE = ".csv"


def schedule_table(
    schedule: str | Path, *, ranks: int, stages: int, microbatches: int, size: int, group: Any
) -> ScheduleTable:
    """Return what each rank does in a step.

    Args:
        schedule: the name of a schedule of torch (``1F1B``), or the path of a CSV file.
        ranks: pipeline ranks.
        stages: stages over all ranks.
        microbatches: microbatches in a step.
        size: the first dimension of one microbatch.
        group: the process group of the pipeline's ranks.

    Raises:
        UsageError: PPC003 for a schedule that there is not, cannot be read, or does not take these
            numbers; PPC521 to PPC527 if what a file says cannot run.
    """
    if str(schedule).endswith(_FILE):
        return _of_file(Path(schedule), ranks, stages, microbatches, size)
    name = str(schedule)
    try:
        schedule_class = get_schedule_class(name)
    except ValueError as error:
        raise UsageError(
            "PPC003",
            f"torch has no schedule {name}",
            expected="a name such as GPipe, 1F1B, Interleaved1F1B or ZBVZeroBubble, or a CSV file",
            found=name,
            hint="see torch.distributed.pipelining.schedules",
        ) from error
    name = schedule_class.__name__.removeprefix("Schedule")
    placement = placed(name, ranks, stages)
    held = max(map(len, placement))
    if held > 1 and not issubclass(schedule_class, PipelineScheduleMulti):
        raise UsageError(
            "PPC003",
            f"the schedule {name} has one stage on each rank",
            expected=f"{ranks} stages, or a schedule such as Interleaved1F1B",
            found=f"{stages} stages on {ranks} ranks",
            hint="choose another schedule, or as many ranks as stages",
        )
    return ScheduleTable(
        name=name,
        csv=None,
        microbatches=microbatches,
        microbatch_size=size,
        stages_of_rank=placement,
        actions=unrolled(name, microbatches, placement, group),
    )


def placed(name: str, ranks: int, stages: int) -> Placement:
    """Return the stages of each rank: dealt out in rounds, or forth and back for a V.

    Raises:
        UsageError: PPC003 if they cannot be dealt out evenly.
    """
    in_v = name in V_SCHEDULES
    if stages % ranks or (in_v and stages != 2 * ranks):
        raise UsageError(
            "PPC003",
            f"{stages} stages cannot be dealt out to {ranks} ranks",
            expected=f"{2 * ranks} stages for {name}" if in_v else f"a multiple of {ranks} stages",
            found=f"{stages} stages",
            hint="cut the model into another number of stages",
        )
    return v_placement(ranks) if in_v else loop_placement(ranks, stages)


def _of_file(path: Path, ranks: int, stages: int, microbatches: int, size: int) -> ScheduleTable:
    what = f"the schedule file {path}"
    file = open_schedule_file(path, hint="correct schedule=")
    asked = (ranks, stages, microbatches)
    found = (len(file.actions), sum(map(len, file.stages_of_rank)), file.microbatches)
    if asked != found:
        numbers = "{} ranks, {} stages, {} microbatches"
        raise UsageError(
            "PPC003",
            f"{what} is for another job",
            expected=numbers.format(*asked),
            found=numbers.format(*found),
            hint="choose a file for these numbers, or change them",
        )
    in_v = file.stages_of_rank == tuple(tuple(sorted(p)) for p in v_placement(ranks))
    # Of those that place stages so: a build says by a name how they lie.
    name = "ZBVZeroBubble" if in_v and stages > ranks else "Interleaved1F1B"
    table = file.table(name, microbatch_size=size)
    refuse(check_table(table), what, error=UsageError)
    return table
