"""Times of actions by stage and kind, with a clock that ticks when told to."""

import json
from types import SimpleNamespace
from typing import Any

from benchmarks.action_times import ActionTimes
from pp_precompile.graph.times import read_times


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def whole_or_input(*_: Any, full_backward: bool = True) -> str:
    return "B" if full_backward else "I"


def test_medians_by_stage_and_kind_without_the_first_step() -> None:
    clock = Clock()
    times = ActionTimes(clock)

    def work(stage: Any, seconds: float, full_backward: bool = True) -> float:
        clock.now += seconds
        return seconds

    forward = times.action(lambda *_: "F", work)
    backward = times.action(whole_or_input, work)
    loss = times.loss(lambda schedule, stage, seconds: work(stage, seconds))
    zero, last = SimpleNamespace(stage_index=0), SimpleNamespace(stage_index=3)

    def run(*lengths: float) -> str:
        for length in lengths:
            forward(zero, length)
            forward(last, length)
            loss(None, last, 0.25)
            backward(last, 2 * length, full_backward=False)
            backward(zero, 3 * length)
        return "done"

    step = times.step(run)
    assert step(100.0) == "done"
    step(1.0, 2.0)
    step(6.0)
    found = read_times([("times_0.json", json.dumps(times.document()).encode())])
    assert found.stages == {0: {"F": 2.0, "B": 6.0}, 3: {"F": 2.25, "I": 4.0}}


def test_a_stage_whose_loss_is_no_part_of_it_has_none() -> None:
    times = ActionTimes(Clock())
    times.loss(lambda schedule, stage: None)(None, SimpleNamespace(stage_index=1))
    assert times.document()["stages"] == {}
