"""A training script on ``torch.distributed.pipelining`` alone, with its phases and losses.

Started by torchrun like :mod:`benchmarks.recorded_train`, with those of torchtitan's arguments that
it knows. Each rank writes ``rank_N.json`` into the folder ``$PP_PRECOMPILE_PHASES``, that of the
last stage ``losses_N.json`` as well. The time in which the stages are traced, for their identity,
counts as the phase ``agree``.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.pipelining import Pipe, SplitPoint, pipeline
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

from benchmarks.counted import write_counts
from benchmarks.pipe_model import Sizes, cross_entropy
from pp_precompile.pipelining import stages
from pp_precompile.runtime.acquire import acquire
from pp_precompile.titan.phases import Phases

MICROBATCHES = 8


def main() -> int:
    """Train as the arguments say, and write the reports."""
    options = _options()
    phases = Phases()
    constructed = time.time()
    phases.imports = constructed - phases.started
    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    model, sizes = getattr(importlib.import_module(options.module), options.config)()
    pipe = _cut(model, sizes, options)
    held = _stages(pipe, options, phases)
    schedule = _schedule(held, options)
    parameters = [p for stage in held for p in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    phases.init = time.time() - constructed - phases.stages
    steps = [_step(schedule, held, optimizer, sizes, phases) for _ in range(options.steps)]
    _report(phases, [step for step in steps if step])
    dist.destroy_process_group()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--module", required=True)
    parser.add_argument("--config", required=True)
    pipeline_of = "--parallelism.pipeline_parallel_"
    parser.add_argument(f"{pipeline_of}degree", dest="degree", type=int, required=True)
    parser.add_argument(f"{pipeline_of}schedule", dest="schedule", default="1F1B")
    shard = "--parallelism.data_parallel_shard_degree"
    parser.add_argument(shard, type=int, choices=(1,), help="there is no data parallelism here")
    parser.add_argument("--training.steps", dest="steps", type=int, required=True)
    parser.add_argument("--debug.seed", dest="seed", type=int, required=True)
    precompile = "--compile.precompile"
    parser.add_argument(precompile, dest="precompile", action="store_true")
    parser.add_argument(f"{precompile}_artifact_dir", dest="store")
    parser.add_argument(f"{precompile}_policy", dest="policy", default="auto")
    parser.add_argument("--dump_folder", help="not used")
    return parser.parse_args()


def _cut(model: torch.nn.Module, sizes: Sizes, options: argparse.Namespace) -> Pipe:
    """Return the model in equal pieces: two a rank for schedules that want several, else one."""
    several = issubclass(get_schedule_class(options.schedule), PipelineScheduleMulti)
    pieces = options.degree * (2 if several else 1)
    layers = sizes.layers // pieces
    split = {f"blocks.{i * layers}": SplitPoint.BEGINNING for i in range(1, pieces)}
    tokens = torch.zeros(1, sizes.positions, dtype=torch.int64)
    return pipeline(model, (tokens,), split_spec=split)


def _stages(pipe: Pipe, options: argparse.Namespace, phases: Phases) -> list[Any]:
    """Return this rank's stages: torch's own, or those with programs from the store."""
    if not options.precompile:
        mine = range(dist.get_rank(), pipe.num_stages, options.degree)
        return [pipe.build_stage(index, torch.device("cpu")) for index in mine]

    def timed(*args: Any, **kwargs: Any) -> Any:
        found = acquire(*args, **kwargs)
        phases.build, phases.load = found.build_seconds, found.load_seconds
        return found

    began = time.perf_counter()
    with mock.patch("pp_precompile.pipelining.start.acquire", timed):
        held = stages(
            pipe,
            schedule=options.schedule,
            microbatches=MICROBATCHES,
            store=options.store,
            policy=options.policy,
        )
    phases.agree = time.perf_counter() - began - phases.build - phases.load
    return list(held)


def _schedule(held: list[Any], options: argparse.Namespace) -> Any:
    kind = get_schedule_class(options.schedule)
    given = held if issubclass(kind, PipelineScheduleMulti) else held[0]
    return kind(given, MICROBATCHES, loss_fn=cross_entropy)


def _step(
    schedule: Any, held: list[Any], optimizer: Any, sizes: Sizes, phases: Phases
) -> dict[str, str] | None:
    """Train one step; returns loss and gradient norm where the loss is known."""
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(len(phases.steps))
    shape = (MICROBATCHES, sizes.positions + 1)
    tokens = torch.randint(sizes.vocabulary, shape, generator=generator)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    losses: list[torch.Tensor] = []
    is_first, is_last = held[0].is_first, held[-1].is_last
    known = {"target": targets, "losses": losses} if is_last else {}
    schedule.step(*([inputs] if is_first else []), **known)
    norm = _gradient_norm(held)
    optimizer.step()
    optimizer.zero_grad()
    phases.step_done(time.perf_counter() - began)
    if not is_last:
        return None
    loss = torch.stack(losses).mean().item()
    return {"loss": loss.hex(), "grad_norm": norm.hex()}


def _gradient_norm(held: list[Any]) -> float:
    """Return the norm over the gradients of all ranks."""
    gradients = [p.grad for stage in held for p in stage.submod.parameters() if p.grad is not None]
    squares = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    dist.all_reduce(squares)
    return squares.sqrt().item()


def _report(phases: Phases, steps: list[dict[str, str]]) -> None:
    rank = dist.get_rank()
    phases.write(rank)
    folder = Path(os.environ["PP_PRECOMPILE_PHASES"])
    write_counts(folder, rank)
    if steps:
        (folder / f"losses_{rank}.json").write_text(json.dumps(steps))


if __name__ == "__main__":
    sys.exit(main())
