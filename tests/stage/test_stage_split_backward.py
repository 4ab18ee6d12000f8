"""A backward cut in two computes bit for bit what it computed in one."""

import dataclasses

import pytest
import torch
from torch import nn

from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.runtime.loader import load_stage
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.stage.programs import StageSource, TracedStage, compile_stages, trace_stage
from tests.modules import CPU, Block, named, source, traced

X = torch.empty(4, 8, requires_grad=True)


class Attention(nn.Module):
    """Operations with several results, shared intermediate values, and views."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(1, 4, 3, 2, 4).transpose(1, 3).unbind(2)
        h = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(h.transpose(1, 2).reshape(4, 8)) * scale


def _split(module: nn.Module, kinds: str = "BIW", x: torch.Tensor = X) -> TracedStage:
    stage = source(module, x, scale=torch.ones(()))
    stage = dataclasses.replace(stage, backward_kinds=frozenset(kinds))
    return trace_stage(stage, device=CPU, meshes=[], compiler={})


@pytest.mark.parametrize("make", [Block, Attention])
def test_both_parts_give_bitwise_the_gradients_of_the_whole(make: type[nn.Module]) -> None:
    stage = _split(make())
    sink = MemorySink()
    loaded = load_stage(stage.record(compile_stages([stage], sink)), sink.read)
    whole, first, second = (
        loaded.record.programs[r] for r in ("backward", "backward_input", "backward_weight")
    )
    generator = torch.Generator().manual_seed(1)
    values = {(v.kind, v.name): _random(v.tensor, generator) for v in whole.inputs}

    def run(role: str) -> dict[tuple[str, str], torch.Tensor]:
        record = loaded.record.programs[role]
        results = loaded.programs[role]([values[v.kind, v.name] for v in record.inputs])
        return {(v.kind, v.name): r for v, r in zip(record.outputs, results, strict=True)}

    expected = run("backward")
    found = run("backward_input")
    values |= {key: value for key, value in found.items() if key[0] == "deferred"}
    found |= run("backward_weight")
    assert {key for key in found if key[0] != "deferred"} == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key
    assert {v.kind for v in first.outputs} == {"argument_gradient", "deferred"}
    assert {v.kind for v in second.outputs} == {"parameter_gradient"}


def _random(spec: TensorSpec | None, generator: torch.Generator) -> torch.Tensor:
    assert spec is not None
    dtype = getattr(torch, spec.dtype)
    tensor = torch.empty_strided(spec.shape, spec.stride, dtype=dtype)
    return tensor.normal_(generator=generator) if dtype.is_floating_point else tensor.zero_()


def test_both_parts_together_take_what_the_whole_takes() -> None:
    programs = _split(Attention()).programs
    parts = (*programs["backward_input"].inputs, *programs["backward_weight"].inputs)
    taken = {(v.kind, v.name) for v in parts if v.kind != "deferred"}
    assert taken == {(v.kind, v.name) for v in programs["backward"].inputs}


def test_nothing_is_computed_twice_but_views() -> None:
    programs = _split(Attention()).programs

    def products(role: str) -> int:
        return sum(
            str(node.target) in ("aten.mm.default", "aten.addmm.default")
            for node in programs[role].graph.graph.nodes
        )

    parts = products("backward_input") + products("backward_weight")
    assert parts == products("backward") > 0


@pytest.mark.parametrize(
    ("kinds", "roles"),
    [
        ("B", {"backward"}),
        ("IW", {"backward_input", "backward_weight"}),
        ("BIW", {"backward", "backward_input", "backward_weight"}),
    ],
)
def test_a_stage_holds_the_parts_that_its_schedule_runs(kinds: str, roles: set[str]) -> None:
    assert _split(Block(), kinds).programs.keys() - {"forward"} == roles


def test_a_first_stage_has_nothing_to_split() -> None:
    stage = _split(Block(), "IW", X.detach())
    assert stage.programs.keys() == {"forward", "backward"}


def test_frozen_weights_leave_nothing_to_split() -> None:
    module = Block().requires_grad_(False)
    assert _split(module, "IW").programs.keys() == {"forward", "backward"}


def test_the_forward_is_the_same_program_for_all_schedules() -> None:
    one, other = traced(Block(), X), _split(Block(), "IW")
    assert one.programs["forward"].key == other.programs["forward"].key


def test_a_stage_source_has_a_whole_backward_unless_asked() -> None:
    stage = StageSource(index=0, modules=(), module=Block(), arguments=named(X), keywords=())
    assert stage.backward_kinds == frozenset("B")
    assert not stage.gather_once
