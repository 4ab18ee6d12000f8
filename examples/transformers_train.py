"""Train a model of ``transformers`` in a pipeline of two ranks, with stages that are compiled once.

A small Llama with random weights: nothing is downloaded. torch cuts it before its second layer. Run
it twice; the second start compiles nothing, and prints the same losses::

    pip install transformers
    torchrun --nproc-per-node 2 examples/transformers_train.py STORE
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline
from transformers import LlamaConfig, LlamaForCausalLM

from pp_precompile.pipelining import stage
from pp_precompile.stage.counters import counters

VOCABULARY, TOKENS, ROWS, MICROBATCHES, STEPS = 64, 16, 2, 4, 20


class Model(nn.Module):
    """A Llama that takes tokens and returns logits, and nothing else of what the library does."""

    def __init__(self) -> None:
        super().__init__()
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=TOKENS,
            # Embedding and output lie in different stages.
            tie_word_embeddings=False,
        )
        self.llama = LlamaForCausalLM(config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of ``tokens`` (rows, TOKENS); shape ``(rows, TOKENS, VOCABULARY)``."""
        # The library's own positions have one row for all. What goes from stage to stage, here sine
        # and cosine of them, holds one microbatch.
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        return self.llama(input_ids=tokens, position_ids=positions, use_cache=False).logits


def loss_fn(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next tokens."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def main(store: str) -> None:
    """Train, and say what this rank compiled."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    microbatch = torch.zeros(ROWS, TOKENS, dtype=torch.long)
    spec = {"llama.model.layers.1": SplitPoint.BEGINNING}
    pipe = pipeline(Model(), (microbatch,), split_spec=spec)
    mine = stage(pipe, rank, schedule="1F1B", microbatches=MICROBATCHES, store=store)
    schedule = Schedule1F1B(mine, MICROBATCHES, loss_fn=loss_fn)
    optimizer = torch.optim.AdamW(mine.submod.parameters(), lr=1e-2)
    batch = torch.randint(VOCABULARY, (ROWS * MICROBATCHES, TOKENS + 1))
    for step in range(STEPS):
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(batch[:, :-1])
        else:
            schedule.step(target=batch[:, 1:], losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        if losses:
            # Nine digits tell every float32 from its neighbours.
            print(f"step {step + 1}: loss {torch.stack(losses).mean():#.9g}", flush=True)
    print(
        f"rank {rank}: {counters.compiled} programs compiled, {counters.loaded} loaded", flush=True
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
