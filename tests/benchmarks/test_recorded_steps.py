"""The clock on torch's own schedules, in one process that holds the whole pipeline."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    FORWARD,
    OVERLAP_F_B,
    PipelineScheduleMulti,
    get_schedule_class,
)

from benchmarks.recorded_steps import _time_actions
from benchmarks.step_clock import StepClock

MICROBATCHES, WIDTH = 4, 3


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def schedule(name: str) -> Any:
    schedule_class = get_schedule_class(name)
    is_multi = issubclass(schedule_class, PipelineScheduleMulti)
    stages = [
        PipelineStage(nn.Linear(WIDTH, WIDTH), index, count, torch.device("cpu"))
        for count in (2 if is_multi else 1,)
        for index in range(count)
    ]
    return schedule_class(
        stages if is_multi else stages[0],
        MICROBATCHES,
        loss_fn=lambda prediction, target: (prediction - target).square().sum(),
    )


@pytest.mark.parametrize(
    ("name", "backward"),
    [
        ("GPipe", {"B": 4}),
        ("1F1B", {"B": 4}),
        ("Interleaved1F1B", {"B": 8}),
        ("InterleavedZeroBubble", {"I": 8, "W": 8}),
    ],
)
def test_every_action_is_timed_once_under_its_kind(name: str, backward: dict[str, int]) -> None:
    clock, pipeline = StepClock(), schedule(name)
    _time_actions(clock, pipeline)
    x = torch.randn(MICROBATCHES, WIDTH)
    pipeline.step(x, target=x)  # the first one also finds out about shapes
    clock.step(pipeline.step)(x, target=x)
    (step,) = clock.steps
    calls = {kind: count for kind, count in step["calls"].items() if kind in "FBIW"}
    assert calls == {"F": sum(backward.values()) if "B" in backward else 8, **backward}
    assert step["calls"]["L"] >= MICROBATCHES
    assert 0 < sum(step["busy"].values()) < step["seconds"]


def test_functions_that_take_over_actions_are_timed() -> None:
    clock, seen = StepClock(), []
    functions = {FORWARD: seen.append, OVERLAP_F_B: seen.append}
    inner = SimpleNamespace(_comp_type_to_function_map=functions)
    pipeline = SimpleNamespace(schedule=inner, _accumulate_stage_sharded_grads=seen.append)
    _time_actions(clock, pipeline)

    def step() -> None:
        functions[FORWARD]("forward")
        functions[OVERLAP_F_B]("both")
        pipeline._accumulate_stage_sharded_grads("gradients")

    clock.step(step)()
    assert seen == ["forward", "both", "gradients"]
    assert clock.steps[0]["calls"] == {"F": 1, "OVERLAP_F_B": 1, "REDUCE_GRAD": 1}
