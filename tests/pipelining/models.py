"""Small models that are cut into stages, by hand and by torch."""

from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import Pipe, SplitPoint, pipeline

WIDTH, ROWS, MICROBATCHES, STEPS = 16, 4, 4, 20


class Block(nn.Module):
    """Two linear layers around an activation; with a mask, only where it is set."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        change = self.down(torch.nn.functional.silu(self.up(x)))
        return x + (change if mask is None else change * mask)


class Model(nn.Module):
    """Blocks, the same input mask for all of them."""

    def __init__(self, blocks: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, mask)
        return x


class Skipping(nn.Module):
    """The first value is added again behind the last block."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.blocks[0](x)
        return self.blocks[2](self.blocks[1](first)) + first


class Tied(nn.Module):
    """The first and the last layer have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.blocks[1].weight = self.blocks[0].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[1](self.blocks[0](x))


class Two(nn.Module):
    """Takes a hidden value and counts; returns both, and one that needs no gradient.

    Counts are changed by a parameter-free step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.block(x), counts + 1, torch.sigmoid(x)


class Last(nn.Module):
    """Takes what :class:`Two` returns, and returns one value."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor, counts: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.block(x) * counts * scale


class Start(nn.Module):
    """Returns its result twice: for the next stage, and for the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.block(x)
        return x, x


class Pass(Start):
    """Returns what it was given for the last stage as it is."""

    def forward(self, x: torch.Tensor, first: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.block(x), first


class PassView(Start):
    """Returns a view of what it was given for the last stage."""

    def forward(self, x: torch.Tensor, first: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.block(x), first.view(-1).view_as(first)


class End(Start):
    """Adds what the first stage reviewed."""

    def forward(self, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return self.block(x) + first


class Around(nn.Module):
    """A connection around two stages, passed through them by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Start(), Pass(), Pass(), End()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = (x,)
        for block in self.blocks[:3]:
            values = block(*values)
        return self.blocks[3](*values)


class Chain(nn.Module):
    """Two and Last, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Two(), Last()])

    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return self.blocks[1](*self.blocks[0](x, counts))


class Plain(Model):
    """Blocks without a mask."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.Sequential(*self.blocks)(x)


class Frozen(Plain):
    """Two blocks are not trained."""

    def __init__(self, first: int = 2) -> None:
        super().__init__()
        self.blocks[first : first + 2].requires_grad_(False)


def seeded(make: Any, *arguments: Any) -> Any:
    """Return a model with the same weights each time."""
    torch.manual_seed(0)
    return make(*arguments)


def cut(model: nn.Module, *inputs: torch.Tensor, at: tuple[int, ...]) -> Pipe:
    """Return torch's pipeline of ``model``, cut before the blocks ``at``."""
    spec = {f"blocks.{index}": SplitPoint.BEGINNING for index in at}
    return pipeline(model, mb_args=inputs, split_spec=spec)


def cut_by_pippy(model: nn.Module, batch: torch.Tensor, *, before: int) -> Any:
    """Return the pipe that ``torchpippy`` makes of ``model``, cut before a block."""
    from pippy.IR import Pipe as OldPipe
    from pippy.IR import PipeSplitWrapper, annotate_split_points

    annotate_split_points(model, {f"blocks.{before}": PipeSplitWrapper.SplitPoint.BEGINNING})
    return OldPipe.from_tracing(model, MICROBATCHES, (batch,))


def microbatch() -> torch.Tensor:
    """Return an example of one microbatch."""
    return torch.zeros(ROWS, WIDTH)


def batch(microbatches: int = MICROBATCHES) -> torch.Tensor:
    """Return the rows of all microbatches of a step."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS * microbatches, WIDTH, generator=generator)


def mask() -> torch.Tensor:
    """Return a mask for all microbatches of a step."""
    generator = torch.Generator().manual_seed(2)
    return (torch.rand(ROWS * MICROBATCHES, WIDTH, generator=generator) > 0.2).float()


def counts() -> torch.Tensor:
    """Return an integer for each row of a step."""
    return torch.arange(ROWS * MICROBATCHES).view(-1, 1) % 3


def loss_fn(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return a mean over rows, as the schedule divides by the number of microbatches."""
    return (prediction - target).square().mean()


def eager(model: nn.Module, *inputs: torch.Tensor) -> tuple[list[float], list[torch.Tensor]]:
    """Train the whole model in this process; losses of all steps and the first gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    found, gradients = [], []
    microbatches = len(inputs[0]) // ROWS
    for _ in range(STEPS):
        chunks = [t.chunk(microbatches) for t in (*inputs, batch(microbatches).flip(0))]
        losses = [loss_fn(model(*given), wanted) for *given, wanted in zip(*chunks, strict=True)]
        torch.stack(losses).mean().backward()
        found += [loss.item() for loss in losses]
        trained = [p for p in model.parameters() if p.requires_grad]
        gradients = gradients or [p.grad.clone() for p in trained]
        optimizer.step()
        optimizer.zero_grad()
    return found, gradients
