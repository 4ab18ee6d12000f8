"""What each rank of the tests does: started by torchrun, with a folder to work in.

Of four ranks, the first two run one pipeline after another. Each case trains a model with stages
that were just compiled, and again with loaded ones, and writes what it saw as ``NAME_RANK.json``.
At the end all four are two replicas of one pipeline.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import schedules

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.pipelining import file_schedule, stage, stages
from pp_precompile.stage.counters import counters
from pp_precompile.titan import gloo
from tests.pipelining import models
from tests.schedules import FOLDER

FILE = FOLDER / "zb_h1_2x8.csv"
"""A schedule that torch does not have by name: one stage a rank, backward in parts."""

FILE_MICROBATCHES = 8

_IN_V = ("ZBVZeroBubble", "DualPipeV")


def train(
    schedule: Any,
    made: list[Any],
    inputs: tuple[torch.Tensor, ...],
    kwargs: dict[str, Any],
    *,
    target: torch.Tensor | None = None,
    replicas: DeviceMesh | None = None,
) -> Any:
    """Train some steps; return the losses and the first step's gradients, bit for bit."""
    parameters = [p for one in made for p in one.submod.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters or [torch.zeros(1)], lr=0.05)
    held = {one.stage_index for one in made}
    last = made[0].num_stages - 1
    wanted = models.batch().flip(0) if target is None else target
    lines, gradients = [], None
    for _ in range(models.STEPS):
        losses: list[torch.Tensor] = []
        given = inputs if 0 in held else ()
        expected = {"target": wanted, "losses": losses} if last in held else {}
        schedule.step(*given, **kwargs, **expected)
        for parameter in parameters if replicas else ():
            dist.all_reduce(parameter.grad, group=replicas.get_group())
            parameter.grad /= replicas.size()
        lines.append([loss.item().hex() for loss in losses])
        gradients = gradients or [[v.hex() for v in p.grad.flatten().tolist()] for p in parameters]
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": lines, "gradients": gradients}


class Cases:
    """The pipelines of two ranks; each method trains one under a policy."""

    def __init__(self, store: Path, pipeline: DeviceMesh) -> None:
        self.job: dict[str, Any] = {"microbatches": models.MICROBATCHES, "store": store}
        self.job["mesh"] = pipeline
        self.rank = pipeline.get_local_rank()

    def alone(
        self,
        what: Any,
        policy: str,
        inputs: tuple[Any, ...],
        *,
        schedule: str = "1F1B",
        mask: bool = False,
        **more: Any,
    ) -> Any:
        """Train the pipe, or this rank's module of two, as the only stage of its rank."""
        made = stage(what, self.rank, schedule=schedule, policy=policy, **self.job, **more)
        cls = schedules.get_schedule_class(schedule)
        runs = cls(made, models.MICROBATCHES, loss_fn=models.loss_fn)
        return train(runs, [made], inputs, {"mask": models.mask()} if mask else {})

    def of_pipe(self, policy: str) -> Any:
        """A model cut by torch, with a keyword input that both stages take."""
        inputs = models.microbatch(), torch.ones(models.ROWS, models.WIDTH)
        pipe = models.cut(models.seeded(models.Model), *inputs, at=(2,))
        return self.alone(pipe, policy, (models.batch(),), mask=True, keywords=("mask",))

    def of_pippy(self, policy: str) -> Any:
        """A model cut by the archived package, under torch's own schedule."""
        pipe = models.cut_by_pippy(models.seeded(models.Plain), models.batch(), before=2)
        return self.alone(pipe, policy, (models.batch(),))

    def of_two(self, make: Any, policy: str, *inputs: torch.Tensor, schedule: str = "1F1B") -> Any:
        """The two halves of a model, one on each rank."""
        blocks = models.seeded(make).blocks
        halves = (
            blocks if len(blocks) == 2 else [nn.Sequential(*blocks[:2]), nn.Sequential(*blocks[2:])]
        )
        example = tuple(tensor[: models.ROWS] for tensor in inputs)
        if self.rank == 1:
            example = halves[0](*example)
            example = example if isinstance(example, tuple) else (example,)
        half = halves[self.rank]
        return self.alone(half, policy, inputs, schedule=schedule, args=example, num_stages=2)

    def of_four(self, name: str, policy: str, make: Any = models.Model, **more: Any) -> Any:
        """Four blocks on two ranks, under one of torch's schedules with two stages a rank."""
        mine = (self.rank, 3 - self.rank if name in _IN_V else self.rank + 2)
        made = _stages_of_four(make, mine, policy, schedule=name, **self.job, **more)
        cls = schedules.get_schedule_class(name)
        runs = cls(made, models.MICROBATCHES, loss_fn=models.loss_fn)
        return train(runs, made, (models.batch(),), {})

    def of_file(self, policy: str) -> Any:
        """Two blocks under a schedule from a file."""
        block = models.seeded(models.Plain, 2).blocks[self.rank]
        job = self.job | {"microbatches": FILE_MICROBATCHES, "schedule": FILE, "policy": policy}
        made = stage(block, self.rank, args=(models.microbatch(),), num_stages=2, **job)
        runs = file_schedule(FILE, [made], loss_fn=models.loss_fn)
        batch = models.batch(FILE_MICROBATCHES)
        return train(runs, [made], (batch,), {}, target=batch.flip(0))


def _stages_of_four(make: Any, mine: tuple[int, ...], policy: str, **job: Any) -> list[Any]:
    blocks = models.seeded(make).blocks
    taken = [(models.microbatch(),) * (2 if make is models.Around and i else 1) for i in mine]
    return stages(
        {index: blocks[index] for index in mine},
        args=dict(zip(mine, taken, strict=True)),
        num_stages=4,
        policy=policy,
        **job,
    )


def of_replicas(store: Path, mesh: DeviceMesh, policy: str) -> Any:
    """Two replicas of a pipeline, each with half of the rows."""
    rank, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp_replicate")
    job = {"schedule": "Interleaved1F1B", "microbatches": models.MICROBATCHES, "store": store}
    made = _stages_of_four(models.Plain, (rank, rank + 2), policy, mesh=mesh, **job)
    runs = schedules.ScheduleInterleaved1F1B(made, models.MICROBATCHES, loss_fn=models.loss_fn)
    whole = models.batch(2 * models.MICROBATCHES)
    rows, target = whole.chunk(2)[replica], whole.flip(0).chunk(2)[replica]
    return train(runs, made, (rows,), {}, target=target, replicas=mesh["dp_replicate"])


CASES: dict[str, Callable[[Cases, str], Any]] = {
    "pipe": Cases.of_pipe,
    "pippy": Cases.of_pippy,
    "gpipe": lambda cases, policy: cases.of_two(
        models.Plain, policy, models.batch(), schedule="GPipe"
    ),
    "interleaved": lambda cases, policy: cases.of_four("Interleaved1F1B", policy),
    "looped": lambda cases, policy: cases.of_four("LoopedBFS", policy),
    "zbv": lambda cases, policy: cases.of_four("ZBVZeroBubble", policy),
    "zero_bubble": lambda cases, policy: cases.of_four("InterleavedZeroBubble", policy),
    "dualpipev": lambda cases, policy: cases.of_four("DualPipeV", policy),
    "file": Cases.of_file,
    "tuple": lambda cases, policy: cases.of_two(
        models.Chain, policy, models.batch(), models.counts()
    ),
    "around": lambda cases, policy: cases.of_four("Interleaved1F1B", policy, models.Around),
    "frozen": lambda cases, policy: cases.of_two(models.Frozen, policy, models.batch()),
    "keyed": lambda cases, policy: cases.of_four("ZBVZeroBubble", policy, key="blocks 1"),
}


def reported(folder: Path, name: str, case: Callable[[str], Any]) -> None:
    """Run a case compiled on the fly, then loaded under a strict policy, and write what it saw."""
    report: dict[str, Any] = {}
    for policy in ("auto", "strict"):
        before = (counters.compiled, counters.loaded)
        report[policy] = case(policy)
        report[policy]["compiled"] = counters.compiled - before[0]
        report[policy]["loaded"] = counters.loaded - before[1]
    (folder / f"{name}_{dist.get_rank()}.json").write_text(json.dumps(report))


def refused(folder: Path, name: str, case: Callable[[], Any]) -> None:
    """Write the error in which ``case`` ends."""
    try:
        case()
    except PrecompileError as error:
        (folder / f"{name}_{dist.get_rank()}.txt").write_text(str(error))


def differing(store: Path, mesh: DeviceMesh) -> Any:
    """Replicas of other models."""
    rank, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp_replicate")
    block = nn.Sequential(*(models.Block() for _ in range(1 + replica)))
    job: Mapping[str, Any] = {"schedule": "1F1B", "microbatches": 4, "num_stages": 2}
    return stage(block, rank, args=(models.microbatch(),), store=store, mesh=mesh, **job)


def main() -> None:
    """Run all cases."""
    folder = Path(sys.argv[1])
    gloo.use_one_thread()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "pp"))
    if mesh.get_local_rank("dp_replicate") == 0:
        cases = Cases(folder / "store", mesh["pp"])
        for name, case in CASES.items():
            reported(folder, name, lambda policy, case=case: case(cases, policy))
        empty = Cases(folder / "empty", mesh["pp"])
        refused(folder, "refused", lambda: empty.of_four("Interleaved1F1B", "strict"))
    dist.barrier()
    reported(folder, "replicas", lambda policy: of_replicas(folder / "store", mesh, policy))
    refused(folder, "differing", lambda: differing(folder / "store", mesh))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
