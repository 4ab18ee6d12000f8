"""What each rank of the tests does: started by torchrun, two ranks, with a folder to work in.

Each case trains a model with stages that were just compiled, and again with loaded ones, and writes
what it saw as ``NAME_RANK.json``.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import schedules

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.pipelining import stage, stages
from pp_precompile.stage.counters import counters
from pp_precompile.titan import gloo
from tests.pipelining import models


def train(schedule: Any, made: list[Any], inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Train some steps; return the losses and the first step's gradients, bit for bit."""
    parameters = [p for one in made for p in one.submod.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters or [torch.zeros(1)], lr=0.05)
    held = {one.stage_index for one in made}
    last = made[0].num_stages - 1
    lines, gradients = [], None
    for _ in range(models.STEPS):
        losses: list[torch.Tensor] = []
        given = inputs if 0 in held else ()
        target = {"target": models.batch().flip(0), "losses": losses} if last in held else {}
        schedule.step(*given, **kwargs, **target)
        lines.append([loss.item().hex() for loss in losses])
        gradients = gradients or [[v.hex() for v in p.grad.flatten().tolist()] for p in parameters]
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": lines, "gradients": gradients}


def alone(
    what: Any, policy: str, store: Path, inputs: tuple[Any, ...], mask: bool = False, **more: Any
) -> Any:
    """Train the pipe, or this rank's module of two, as the only stage of its rank under 1F1B."""
    made = stage(
        what,
        dist.get_rank(),
        schedule="1F1B",
        microbatches=models.MICROBATCHES,
        store=store,
        policy=policy,
        **more,
    )
    schedule = schedules.Schedule1F1B(made, models.MICROBATCHES, loss_fn=models.loss_fn)
    return train(schedule, [made], inputs, {"mask": models.mask()} if mask else {})


def of_pipe(policy: str, store: Path) -> Any:
    """A model cut by torch, with a keyword input that both stages take."""
    inputs = models.microbatch(), torch.ones(models.ROWS, models.WIDTH)
    pipe = models.cut(models.seeded(models.Model), *inputs, at=(2,))
    return alone(pipe, policy, store, (models.batch(),), mask=True, keywords=("mask",))


def of_pippy(policy: str, store: Path) -> Any:
    """A model cut by the archived package, under torch's own schedule."""
    pipe = models.cut_by_pippy(models.seeded(models.Plain), models.batch(), before=2)
    return alone(pipe, policy, store, (models.batch(),))


def of_modules(name: str, policy: str, store: Path, key: str | None = None) -> Any:
    """Four blocks on two ranks, under one of torch's schedules with two stages a rank."""
    blocks = models.seeded(models.Model).blocks
    cls = schedules.get_schedule_class(name)
    rank = dist.get_rank()
    mine = (rank, 3 - rank) if name == "ZBVZeroBubble" else (rank, rank + 2)
    made = stages(
        {index: blocks[index] for index in mine},
        args={index: (models.microbatch(),) for index in mine},
        num_stages=4,
        schedule=name,
        microbatches=models.MICROBATCHES,
        store=store,
        policy=policy,
        key=key,
    )
    schedule = cls(made, models.MICROBATCHES, loss_fn=models.loss_fn)
    return train(schedule, list(made), (models.batch(),), {})


def of_two(make: Any, policy: str, store: Path, *inputs: torch.Tensor) -> Any:
    """The two halves of a model, one on each rank, under 1F1B."""
    blocks = models.seeded(make).blocks
    halves = (
        blocks if len(blocks) == 2 else [nn.Sequential(*blocks[:2]), nn.Sequential(*blocks[2:])]
    )
    example = [tensor[: models.ROWS] for tensor in inputs]
    half = halves[dist.get_rank()]
    return alone(half, policy, store, inputs, args=example, num_stages=2)


CASES: dict[str, Callable[[str, Path], Any]] = {
    "pipe": of_pipe,
    "pippy": of_pippy,
    "interleaved": lambda policy, store: of_modules("Interleaved1F1B", policy, store),
    "zbv": lambda policy, store: of_modules("ZBVZeroBubble", policy, store),
    "tuple": lambda policy, store: of_two(
        models.Chain, policy, store, models.batch(), models.counts()
    ),
    "frozen": lambda policy, store: of_two(models.Frozen, policy, store, models.batch()),
    "keyed": lambda policy, store: of_modules("ZBVZeroBubble", policy, store, key="blocks 1"),
}


def main() -> None:
    """Run all cases: compiled on the fly, then loaded under a strict policy."""
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    gloo.use_one_thread()
    dist.init_process_group("gloo")
    for name, case in CASES.items():
        report: dict[str, Any] = {}
        for policy in ("auto", "strict"):
            before = (counters.compiled, counters.loaded)
            report[policy] = case(policy, folder / "store")
            report[policy]["compiled"] = counters.compiled - before[0]
            report[policy]["loaded"] = counters.loaded - before[1]
        (folder / f"{name}_{rank}.json").write_text(json.dumps(report))
    try:
        of_modules("Interleaved1F1B", "strict", folder / "empty")
    except PrecompileError as error:
        (folder / f"refused_{rank}.txt").write_text(str(error))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
