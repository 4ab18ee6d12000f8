"""A step gathers at its first forward, reduces at its last backward, and notices what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.program import BlobRef, ProgramRecord, Value
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.runtime.binding import Binding
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.step import Step
from pp_precompile.stage.describe import describe, describe_state

WEIGHT = torch.arange(4.0)


def _program(inputs: tuple[str, str], outputs: tuple[str, str]) -> ProgramRecord:
    digest = digest_bytes(str((inputs, outputs)).encode())
    return ProgramRecord(
        key=digest,
        blob=BlobRef(digest=digest, size=0),
        kernels=0,
        inputs=(Value(kind=inputs[0], name=inputs[1], tensor=describe(WEIGHT)),),
        outputs=(Value(kind=outputs[0], name=outputs[1], tensor=describe(WEIGHT)),),
    )


class Calls:
    """Programs that count how often they run: gathering doubles, reducing halves."""

    def __init__(self) -> None:
        self.counts = {"unshard": 0, "reduce_grad": 0}

    def program(self, role: str, factor: float) -> Callable[[list[Any]], list[Any]]:
        def run(inputs: list[Any]) -> list[Any]:
            self.counts[role] += 1
            return [inputs.pop() * factor]

        return run


@pytest.fixture
def module() -> nn.Module:
    result = nn.Module()
    result.weight = nn.Parameter(WEIGHT.clone())
    return result


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def step(module: nn.Module, calls: Calls) -> Step:
    """Three microbatches of a stage with one parameter."""
    parameters, buffers = describe_state(module)
    record = StageRecord(
        index=2,
        modules=("layer",),
        arguments=(NamedTensor(name="0", tensor=describe(WEIGHT)),),
        keywords=(),
        outputs=(),
        parameters=parameters,
        buffers=buffers,
        programs={
            "unshard": _program(("parameter", "weight"), ("unsharded", "weight")),
            "reduce_grad": _program(
                ("unsharded_gradient", "weight"), ("parameter_gradient", "weight")
            ),
        },
    )
    programs = {
        "unshard": calls.program("unshard", 2.0),
        "reduce_grad": calls.program("reduce_grad", 0.5),
    }
    stage = LoadedStage(record=record, programs=programs)
    return Step(stage, Binding(module, record), 3)


def _microbatch(step: Step, gradient: float) -> None:
    microbatch = step.forward()
    assert torch.equal(step.unsharded()["weight"], 2 * WEIGHT)
    step.add({"weight": torch.full((4,), gradient)})
    step.end(microbatch)


def test_it_gathers_and_reduces_once(step: Step, module: Any, calls: Calls) -> None:
    for number in (1.0, 2.0, 3.0):
        assert module.weight.grad is None
        _microbatch(step, number)
    assert calls.counts == {"unshard": 1, "reduce_grad": 1}
    assert torch.equal(module.weight.grad, torch.full((4,), 3.0))


def test_the_next_step_gathers_again_and_adds(step: Step, module: Any, calls: Calls) -> None:
    for number in (1.0, 2.0, 3.0, 1.0, 2.0, 3.0):
        _microbatch(step, number)
    assert calls.counts == {"unshard": 2, "reduce_grad": 2}
    assert torch.equal(module.weight.grad, torch.full((4,), 6.0))


def test_parameters_changed_between_steps_are_gathered_as_they_are(step: Step, module: Any) -> None:
    for _ in range(3):
        _microbatch(step, 1.0)
    with torch.no_grad():
        module.weight.add_(1.0)
    microbatch = step.forward()
    assert torch.equal(step.unsharded()["weight"], 2 * WEIGHT + 2)
    step.end(microbatch)


def test_a_microbatch_too_many_is_refused(step: Step) -> None:
    first, second, third = (step.forward() for _ in range(3))
    with pytest.raises(PrecompileError, match=r"PPC106.*stage 2") as raised:
        step.forward()
    assert raised.value.expected == "3 forwards and backwards in a step"
    for microbatch in (first, second, third):
        step.add({"weight": torch.ones(4)})
        step.end(microbatch)
    _microbatch(step, 1.0)


def test_forwards_that_nobody_follows_up_do_not_count(step: Step, calls: Calls) -> None:
    for _ in range(5):
        step.forward()  # dropped at once, as after an evaluation with gradients enabled
    for number in (1.0, 2.0, 3.0):
        _microbatch(step, number)
    assert calls.counts["reduce_grad"] == 1


def test_outside_of_a_step_nothing_is_kept(step: Step, calls: Calls) -> None:
    first, second = step.unsharded(), step.unsharded()
    assert first["weight"] is not second["weight"]
    assert calls.counts["unshard"] == 2


def test_inside_of_a_step_what_was_gathered_is_kept(step: Step, calls: Calls) -> None:
    microbatch = step.forward()
    step.end(microbatch)  # between two microbatches, as on a last stage
    assert step.unsharded()["weight"] is step.unsharded()["weight"]
    assert calls.counts["unshard"] == 1
