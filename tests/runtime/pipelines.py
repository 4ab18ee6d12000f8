"""A pipeline of one process: small stages under torch's own schedules, eager and from programs."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.runtime.loader import LoadedStage, load_stages
from pp_precompile.runtime.pipeline_stage import PrecompiledStage
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.runtime.stage_forward import StageForward, install
from pp_precompile.stage.describe import describe
from pp_precompile.stage.programs import StageSource, compile_stages, trace_stage
from tests.modules import CPU

MICROBATCHES, TOKENS, WORDS, WIDTH = 8, 6, 16, 8


class First(nn.Module):
    """An embedding and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layer = Middle()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.words(x))


class Middle(nn.Module):
    """Two linear layers around an activation, with a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return x + self.down(torch.nn.functional.silu(self.up(h)))


def tokens() -> torch.Tensor:
    """Return one batch, a row for each microbatch."""
    torch.manual_seed(3)
    return torch.randint(0, WORDS, (MICROBATCHES, TOKENS))


def modules(stages: int) -> list[nn.Module]:
    """Return the stages with their weights."""
    torch.manual_seed(2)
    return [First(), *(Middle() for _ in range(stages - 1))]


def loss_fn(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return a scalar that depends on every entry of the prediction."""
    weights = torch.linspace(-1, 1, prediction.numel()).view_as(prediction)
    return (prediction * weights).square().sum() + 0.0 * target.sum()


def compiled(stages: Sequence[nn.Module], kinds: str) -> list[LoadedStage]:
    """Compile the stages for schedules with backward actions of these kinds, and load them."""
    hidden = torch.empty(1, TOKENS, WIDTH, requires_grad=True)
    sink = MemorySink()
    traced = [
        trace_stage(
            StageSource(
                index=index,
                modules=(f"stage{index}",),
                module=module,
                arguments=(
                    NamedTensor(name="0", tensor=describe(hidden if index else tokens()[:1])),
                ),
                keywords=(),
                backward_kinds=frozenset(kinds),
            ),
            device=CPU,
            meshes=[],
            compiler={},
        )
        for index, module in enumerate(stages)
    ]
    entries = compile_stages(traced, sink)
    loaded = load_stages([stage.record(entries) for stage in traced], sink.read)
    return [loaded[index] for index in range(len(stages))]


def pipeline(
    name: str, stages: Sequence[nn.Module], loaded: Sequence[LoadedStage]
) -> tuple[Any, list[PrecompiledStage], list[StageForward]]:
    """Return torch's schedule over copies of ``stages`` that run the programs."""
    warm = [copy.deepcopy(module) for module in stages]
    forwards = []
    for module, stage in zip(warm, loaded, strict=True):
        forwards.append(install(module, stage))
        forwards[-1].bind(module, microbatches=MICROBATCHES)
    torch_stages = [
        PrecompiledStage(
            module,
            forward,
            stage.record,
            stages=len(stages),
            device=CPU,
            group=torch.distributed.group.WORLD,
        )
        for module, forward, stage in zip(warm, forwards, loaded, strict=True)
    ]
    schedule_class = get_schedule_class(name)
    is_multi = issubclass(schedule_class, PipelineScheduleMulti)
    schedule = schedule_class(
        torch_stages if is_multi else torch_stages[0],
        MICROBATCHES,
        loss_fn=loss_fn,
        scale_grads=False,
    )
    return schedule, torch_stages, forwards


def eager(stages: Sequence[nn.Module]) -> tuple[list[float], list[dict[str, torch.Tensor]]]:
    """Return the losses and gradients of the stages one after another, without a pipeline."""
    losses = []
    for row in tokens().split(1):
        x = row
        for module in stages:
            x = module(x)
        loss = loss_fn(x, row)
        loss.backward()
        losses.append(loss.item())
    return losses, [{n: p.grad for n, p in m.named_parameters()} for m in stages]
