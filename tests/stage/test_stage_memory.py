"""What is saved between forward and backward, and what is computed again."""

import dataclasses

import torch
from torch import fx, nn
from torch.utils.checkpoint import CheckpointPolicy

from pp_precompile.contract.program import Role
from pp_precompile.stage.memory import NO_CHECKPOINTING, Checkpointing
from pp_precompile.stage.programs import TracedStage, trace_stage
from tests.modules import CPU, source

X = torch.empty(4, 8, requires_grad=True)


class Noisy(nn.Module):
    """Two linear layers with a dropout between them."""

    def __init__(self, probability: float = 0.5) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.drop = nn.Dropout(probability)
        self.second = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.drop(nn.functional.silu(self.first(x))))


def _recompute_all(joint: fx.GraphModule) -> None:
    for node in joint.graph.nodes:
        if node.op == "call_function" and not node.meta.get("autograd_backward"):
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def _traced(module: nn.Module, checkpointing: Checkpointing) -> TracedStage:
    stage = dataclasses.replace(source(module, X), checkpointing=checkpointing)
    return trace_stage(stage, device=CPU, meshes=[], compiler={})


def _saved(stage: TracedStage) -> list[tuple[int, ...]]:
    """Return the shapes of what is kept for one microbatch, without inputs and parameters."""
    return [
        value.tensor.shape
        for value in stage.programs["forward"].outputs
        if value.kind == "saved" and value.alias is None and value.tensor is not None
    ]


def _operations(stage: TracedStage, role: Role) -> list[str]:
    return [str(n.target) for n in stage.programs[role].graph.graph.nodes]


def test_nothing_but_inputs_is_saved_if_all_is_computed_again() -> None:
    module = Noisy(probability=0.0)
    assert _saved(_traced(module, NO_CHECKPOINTING))
    assert _saved(_traced(module, Checkpointing(tag=_recompute_all))) == []
    assert _saved(_traced(module, Checkpointing(budget=0.0))) == []


def test_random_numbers_are_saved_and_never_drawn_twice() -> None:
    stage = _traced(Noisy(), Checkpointing(tag=_recompute_all))

    def draws(role: Role) -> list[str]:
        words = ("rand", "bernoulli", "dropout.")
        return [name for name in _operations(stage, role) if any(w in name for w in words)]

    assert len(draws("forward")) == 1
    assert draws("backward") == []
    assert (4, 16) in _saved(stage)
