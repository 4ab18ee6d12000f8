"""Small modules to trace, compile and run, and what they are called with."""

from typing import Any

import torch
from torch import nn

from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.stage.describe import describe
from pp_precompile.stage.programs import StageSource, TracedStage, trace_stage

CPU = torch.device("cpu")


class Block(nn.Module):
    """A linear layer, a norm and a scale by a keyword input; counts its calls in a buffer."""

    def __init__(self, dim: int = 8, *, eps: float = 1e-5, name: str = "proj") -> None:
        super().__init__()
        self.name = name
        self.eps = eps
        self.add_module(name, nn.Linear(dim, dim))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        h = self.get_submodule(self.name)(x)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return (x + torch.nn.functional.silu(h)) * scale


class Loss(nn.Module):
    """A scalar of prediction, labels and count."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, labels, reduction="sum") / count


def named(*tensors: torch.Tensor) -> tuple[NamedTensor, ...]:
    """Describe positional inputs."""
    return tuple(NamedTensor(name=str(i), tensor=describe(t)) for i, t in enumerate(tensors))


def source(module: nn.Module, x: torch.Tensor, loss: bool = False, **keywords: Any) -> StageSource:
    """Return a stage that is called with ``x`` and ``keywords``."""
    labels, count = torch.zeros(x.shape[0], dtype=torch.int64), torch.zeros((), dtype=torch.int64)
    return StageSource(
        index=0,
        modules=("block",),
        module=module,
        arguments=named(x),
        keywords=tuple(NamedTensor(name=n, tensor=describe(t)) for n, t in keywords.items()),
        loss=Loss() if loss else None,
        loss_arguments=named(x.detach().requires_grad_(), labels, count) if loss else (),
    )


def traced(module: nn.Module, x: torch.Tensor, loss: bool = False, **keywords: Any) -> TracedStage:
    """Trace a stage under fixed compiler factors."""
    keywords = keywords or {"scale": torch.ones(())}
    return trace_stage(source(module, x, loss, **keywords), device=CPU, meshes=[], compiler={})
