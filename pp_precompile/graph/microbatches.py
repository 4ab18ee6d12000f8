"""Microbatches make up the local batch, and every boundary value holds one of them."""

from collections.abc import Iterable, Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.graph import tensors
from pp_precompile.graph.finding import Finding

_LOCAL_BATCH = "training.local_batch_size"


def check_count(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC003 if the microbatches are too few, or do not make up the local batch."""
    schedule = manifest.schedule
    made = schedule.microbatches * schedule.microbatch_size
    batch = manifest.factors.get(_LOCAL_BATCH)
    if batch is not None and batch != str(made):
        yield _uncut(
            "microbatches",
            "the microbatches do not make up the local batch",
            f"{batch} sequences",
            f"{schedule.microbatches} x {schedule.microbatch_size} = {made}",
        )
    if schedule.microbatches < len(manifest.stages):
        yield _uncut(
            "microbatches",
            "there are fewer microbatches than stages",
            f"at least {len(manifest.stages)} microbatches",
            str(schedule.microbatches),
        )


def check_batch_dimension(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC531 for a boundary value whose first dimension is not the microbatch size."""
    size = manifest.schedule.microbatch_size
    for stage in manifest.stages:
        outputs = () if stage.returns_loss else stage.outputs
        yield from check_boundary(stage.index, stage.arguments, outputs, size=size)


def check_boundary(
    stage: int, arguments: Iterable[NamedTensor], outputs: Iterable[TensorSpec], *, size: int
) -> Iterator[Finding]:
    """Yield PPC531 for what a stage takes or returns whose first dimension is not ``size``."""
    values = [(f"argument {item.name}", item.tensor) for item in arguments]
    values += [(f"output {k}", tensor) for k, tensor in enumerate(outputs)]
    for field, tensor in values:
        if tensor.shape[:1] != (size,):
            yield Finding(
                code="PPC531",
                message=f"a boundary value of stage {stage} does not hold one microbatch",
                where=Where(stage=stage, field=field),
                expected=f"{size} as first dimension",
                found=tensors.text(tensor),
                hint="build again with the job's microbatch size; expand a value that is one for "
                "all rows",
            )


def check_microbatches_asked(stored: ScheduleTable, asked: ScheduleTable) -> Iterator[Finding]:
    """Yield PPC604 if number or size of the microbatches differ."""
    if _numbers(stored) != _numbers(asked):
        yield Finding(
            code="PPC604",
            message="the stored microbatches are not those that the job asks for",
            where=Where(field="schedule.microbatches"),
            expected=_text(asked),
            found=_text(stored),
            hint="build with the job's sizes, or give the job the build's",
        )


def _uncut(field: str, message: str, expected: str, found: str) -> Finding:
    return Finding(
        code="PPC003",
        message=message,
        where=Where(field=f"schedule.{field}"),
        expected=expected,
        found=found,
        hint="change --training.local_batch_size or "
        "--parallelism.pipeline_parallel_microbatch_size, and build again",
    )


def _numbers(schedule: ScheduleTable) -> tuple[int, int]:
    return schedule.microbatches, schedule.microbatch_size


def _text(schedule: ScheduleTable) -> str:
    return f"{schedule.microbatches} microbatches of {schedule.microbatch_size} sequences"
