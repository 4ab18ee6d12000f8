"""Train a small model in a pipeline of two ranks, with stages that are compiled once.

Without torchtitan: the stages are those that ``torch.distributed.pipelining`` cuts, and the
schedule is torch's own. Run it twice; the second start compiles nothing::

    torchrun --nproc-per-node 2 examples/pipelining_train.py STORE
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline

from pp_precompile.pipelining import stage
from pp_precompile.stage.counters import counters

WIDTH, ROWS, MICROBATCHES, STEPS = 64, 8, 4, 20


class Block(nn.Module):
    """A feed-forward network around its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` with something added; shape ``(rows, WIDTH)``."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    """Four blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the last block returns; shape ``(rows, WIDTH)``."""
        for block in self.blocks:
            x = block(x)
        return x


def main(store: str) -> None:
    """Train, and say what this rank compiled."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    microbatch = torch.zeros(ROWS, WIDTH)
    pipe = pipeline(Model(), (microbatch,), split_spec={"blocks.2": SplitPoint.BEGINNING})
    mine = stage(pipe, rank, schedule="1F1B", microbatches=MICROBATCHES, store=store)
    schedule = Schedule1F1B(mine, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(mine.submod.parameters(), lr=1e-2)
    batch = torch.randn(ROWS * MICROBATCHES, WIDTH)
    for step in range(STEPS):
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=batch.roll(1, dims=0), losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        if losses and step in (0, STEPS - 1):
            print(f"step {step + 1}: loss {torch.stack(losses).mean():.6f}")
    print(
        f"rank {rank}: {counters.compiled} programs compiled, {counters.loaded} loaded", flush=True
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
