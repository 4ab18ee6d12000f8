from typing import Any

import pytest

from benchmarks import step_clock
from benchmarks.step_clock import StepClock


class Time:
    """A clock that only moves when it is told to; processor time goes half as fast."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2

    def takes(self, seconds: float, then: Any = None) -> Any:
        """Return a function that takes ``seconds``, and then calls ``then``."""

        def function(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return then(*args, **kwargs) if then else (args, kwargs)

        return function


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake = Time()
    monkeypatch.setattr(step_clock, "time", fake)
    return fake


def test_a_step_is_taken_apart(time: Time) -> None:
    clock = StepClock()
    wait = clock.wait(time.takes(1.0))
    program = clock.program(time.takes(4.0))
    forward = clock.action("F", time.takes(2.0, program))
    backward = clock.action("B", time.takes(8.0, wait))

    def step() -> None:
        wait()
        for action in (forward, forward, backward):
            action()
        time.now += 16.0

    clock.step(step)()
    assert clock.steps == [
        {
            "seconds": 1 + 2 * (2 + 4) + (8 + 1) + 16,
            "cpu": 19,
            "waiting": 2.0,
            "programs": 8.0,
            "busy": {"F": 12.0, "B": 8.0},
            "calls": {"F": 2, "B": 1, "program": 2},
        }
    ]


def test_every_step_starts_anew(time: Time) -> None:
    clock = StepClock()
    step = clock.step(clock.action("F", time.takes(2.0)))
    step()
    step()
    assert clock.steps[0] == clock.steps[1]


def test_what_an_action_calls_is_part_of_it(time: Time) -> None:
    clock = StepClock()
    inner = clock.action("B", time.takes(1.0))
    clock.step(clock.action("W", time.takes(2.0, inner)))()
    assert clock.steps[0]["busy"] == {"W": 3.0}
    assert clock.steps[0]["calls"] == {"W": 1}


def test_the_kind_may_depend_on_the_arguments_which_are_passed_on(time: Time) -> None:
    clock = StepClock()
    action = clock.action(lambda _, whole: "B" if whole else "I", time.takes(1.0))

    def step() -> None:
        assert action(3, whole=False) == ((3,), {"whole": False})

    clock.step(step)()
    assert clock.steps[0]["calls"] == {"I": 1}


def test_an_action_that_fails_ends(time: Time) -> None:
    clock = StepClock()

    def fail() -> None:
        raise RuntimeError("fault")

    with pytest.raises(RuntimeError, match="fault"):
        clock.action("F", fail)()
    clock.step(clock.action("F", time.takes(1.0)))()
    assert clock.steps[0]["busy"] == {"F": 1.0}
