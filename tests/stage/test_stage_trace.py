"""Tracing names every value, needs no weights, and leaves the module as it was."""

import pytest
import torch
from torch import nn

from pp_precompile.contract.errors import CompileError
from tests.modules import Block, traced

X = torch.empty(4, 8, requires_grad=True)


def _named(stage, role, side):
    return [(v.kind, v.name) for v in getattr(stage.programs[role], side)]


def test_values_are_named_by_fqn_position_and_keyword() -> None:
    stage = traced(Block(), X)
    assert set(_named(stage, "forward", "inputs")) == {
        ("parameter", "proj.weight"),
        ("parameter", "proj.bias"),
        ("buffer", "calls"),
        ("argument", "0"),
        ("keyword", "scale"),
    }
    outputs = _named(stage, "forward", "outputs")
    assert outputs[:2] == [("buffer_update", "calls"), ("output", "0")]
    assert {kind for kind, _ in outputs[2:]} == {"saved"}
    assert _named(stage, "backward", "outputs") == [
        ("parameter_gradient", "proj.weight"),
        ("parameter_gradient", "proj.bias"),
        ("argument_gradient", "0"),
    ]
    saved = [name for kind, name in outputs if kind == "saved"]
    inputs = _named(stage, "backward", "inputs")
    assert [name for kind, name in inputs if kind == "saved"] == saved
    assert inputs[-1] == ("tangent", "0")


def test_a_saved_parameter_is_an_alias_and_costs_nothing() -> None:
    stage = traced(Block(), X)
    aliases = {v.alias for v in stage.programs["forward"].outputs if v.alias}
    assert "parameter:proj.weight" in aliases
    assert "argument:0" in aliases


def test_meta_weights_are_enough_and_stay_what_they_were() -> None:
    with torch.device("meta"):
        module = Block()
    before = dict(module.named_parameters())
    on_meta, real = traced(module, X), traced(Block(), X)
    assert {r: p.key for r, p in on_meta.programs.items()} == {
        r: p.key for r, p in real.programs.items()
    }
    assert all(module.get_parameter(name) is p for name, p in before.items())
    assert all(p.is_meta for p in module.parameters())


def test_a_frozen_parameter_has_no_gradient() -> None:
    module = Block()
    module.get_submodule("proj").weight.requires_grad_(False)
    assert ("parameter_gradient", "proj.weight") not in _named(
        traced(module, X), "backward", "outputs"
    )


def test_a_first_stage_has_no_gradient_of_its_input() -> None:
    stage = traced(Block(), X.detach())
    assert ("argument_gradient", "0") not in _named(stage, "backward", "outputs")


def test_a_loss_is_one_program_with_its_gradients() -> None:
    stage = traced(Block(), X, loss=True)
    assert _named(stage, "loss", "inputs") == [("argument", str(i)) for i in range(3)]
    assert _named(stage, "loss", "outputs") == [("output", "0"), ("argument_gradient", "0")]


def test_a_module_that_branches_on_data_is_refused_by_stage() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(CompileError) as raised:
        traced(Branch(), X)
    assert raised.value.code == "PPC301"
    assert raised.value.where.stage == 0
    assert "next:" in str(raised.value)
