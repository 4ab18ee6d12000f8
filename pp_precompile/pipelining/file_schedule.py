"""torch's schedule object for a schedule file, which torch makes through private methods only."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.schedule_file import open_schedule_file
from pp_precompile.runtime.pipeline_stage import PrecompiledStage
from pp_precompile.runtime.private_schedules import schedule_from_actions


def file_schedule(
    path: str | Path,
    stages: Sequence[PrecompiledStage],
    *,
    loss_fn: Any = None,
    scale_grads: bool = True,
) -> Any:
    """Return a schedule that runs the file ``path``, as torch's own classes run theirs.

    Args:
        path: the CSV file that ``stages`` were made with (``schedule=``).
        stages: this rank's, of :func:`pp_precompile.pipelining.stages`.
        loss_fn: as for torch's schedules: of a microbatch's output and target.
        scale_grads: whether gradients are divided by the number of microbatches.

    Raises:
        UsageError: PPC003 if the file cannot be read, or gives this rank other stages.
    """
    file = open_schedule_file(Path(path), hint="correct the path")
    held = tuple(sorted(stage.stage_index for stage in stages))
    rank = stages[0].group_rank
    wanted = file.stages_of_rank[rank] if rank < len(file.stages_of_rank) else ()
    if held != wanted:
        raise UsageError(
            "PPC003",
            f"the schedule file {path} gives rank {rank} of the pipeline other stages",
            expected=f"stages {list(wanted)}",
            found=f"stages {list(held)}",
            hint="pass the file to stages() as well, and all stages that it returns to this",
        )
    return schedule_from_actions(
        file.actions,
        list(stages),
        n_microbatches=file.microbatches,
        loss_fn=loss_fn,
        scale_grads=scale_grads,
    )
