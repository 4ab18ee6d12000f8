"""A stored whole step: what it takes and hands out, by name."""

from typing import Any

import pytest
import torch
from torch import nn

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.errors import StaleBuildError
from pp_precompile.contract.program import BlobRef, ProgramRecord, Value
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.whole_step import WholeStep
from pp_precompile.stage.describe import describe_state

TOKENS = TensorSpec(shape=(2, 3), stride=(3, 1), dtype="int64", device="cpu", requires_grad=False)
COUNT = TensorSpec(shape=(), stride=(), dtype="int64", device="cpu", requires_grad=False)


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))


def _record(module: nn.Module) -> StageRecord:
    parameters, buffers = describe_state(module)
    state = {item.name: item.tensor for item in (*parameters, *buffers)}
    loss = TensorSpec(shape=(), stride=(), dtype="float32", device="cpu", requires_grad=False)

    def value(kind: Any, name: str, tensor: TensorSpec) -> Value:
        return Value(kind=kind, name=name, tensor=tensor)

    digest = digest_bytes(b"")
    forward = ProgramRecord(
        key=digest,
        blob=BlobRef(digest=digest, size=0),
        kernels=0,
        inputs=(
            value("loss_argument", "2", COUNT),
            value("buffer", "seen", state["seen"]),
            value("loss_argument", "1", TOKENS),
            value("argument", "0", TOKENS),
            value("parameter", "scale", state["scale"]),
            value("keyword", "positions", TOKENS),
        ),
        outputs=(
            value("output", "0", loss),
            value("parameter_gradient", "scale", state["scale"]),
            value("buffer_update", "seen", state["seen"]),
        ),
    )
    return StageRecord(
        index=0,
        modules=("scale",),
        arguments=(NamedTensor(name="0", tensor=TOKENS),),
        keywords=(NamedTensor(name="positions", tensor=TOKENS),),
        outputs=(loss,),
        parameters=parameters,
        buffers=buffers,
        programs={"forward": forward},
    )


def _program(inputs: list[Any]) -> tuple[torch.Tensor, ...]:
    assert not torch.is_grad_enabled()
    count, seen, labels, tokens, scale, positions = inputs
    assert labels.is_contiguous()
    loss = (scale.sum() * (tokens + positions - labels).sum()) / count
    return loss, scale * tokens.sum(), seen + tokens.numel()


def _step() -> tuple[WholeStep, Module]:
    module = Module()
    stage = LoadedStage(record=_record(module), programs={"forward": _program})
    return WholeStep(stage, module), module


def _call(step: WholeStep, **changed: torch.Tensor) -> torch.Tensor:
    ones = torch.ones(2, 3, dtype=torch.int64)
    given = {"tokens": ones, "positions": 2 * ones, "labels": ones, "count": torch.tensor(6)}
    given |= changed
    keywords = {"positions": given["positions"], "attention_masks": None}
    return step((given["tokens"],), keywords, (given["labels"], given["count"]))  # type: ignore[arg-type]


def test_every_value_goes_where_its_name_says() -> None:
    step, module = _step()
    assert _call(step).item() == 10
    assert module.scale.grad is not None
    assert module.scale.grad.tolist() == [12, 18]
    assert module.seen == 6
    # The gradients of more microbatches are added up.
    labels = torch.ones(3, 2, dtype=torch.int64).t()
    assert _call(step, labels=labels).item() == 10
    assert module.scale.grad.tolist() == [24, 36]
    assert module.seen == 12


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("tokens", "0", torch.ones(2, 4, dtype=torch.int64)),
        ("labels", "1", torch.ones(2, 3, dtype=torch.int32)),
        ("count", "2", torch.ones(1, dtype=torch.int64)),
    ],
)
def test_other_inputs_are_refused(name: str, field: str, value: torch.Tensor) -> None:
    step, module = _step()
    with pytest.raises(StaleBuildError, match=f"input {field}") as raised:
        _call(step, **{name: value})
    assert raised.value.code == "PPC104"
    assert module.scale.grad is None


def test_missing_inputs_are_named() -> None:
    step, _ = _step()
    tokens = torch.ones(2, 3, dtype=torch.int64)
    with pytest.raises(StaleBuildError, match="positions"):
        step((tokens,), {}, (tokens, torch.tensor(6)))


def test_another_module_is_refused() -> None:
    module = Module()
    record = _record(module)
    module.scale = nn.Parameter(torch.ones(3))
    with pytest.raises(StaleBuildError, match="scale") as raised:
        WholeStep(LoadedStage(record=record, programs={"forward": _program}), module)
    assert raised.value.code == "PPC103"
