"""A decoder of plain torch modules, about the size of torchtitan's debug models."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a decoder; ``positions`` tokens make a sequence."""

    layers: int = 8
    width: int = 256
    heads: int = 8
    vocabulary: int = 2048
    positions: int = 256


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.qkv = nn.Linear(sizes.width, 3 * sizes.width, bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what every position takes from those before it; shape ``(rows, seq, width)``."""
        rows, length, width = x.shape
        shape = (rows, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    """Attention and a gated feed-forward network, each around its input."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.attention_norm, self.feed_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(sizes)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` with what was computed from it added; shape ``(rows, seq, width)``."""
        x = x + self.attention(self.attention_norm(x))
        y = self.feed_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Token ids ``(rows, seq)`` in, logits ``(rows, seq, vocabulary)`` out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.position = nn.Embedding(sizes.positions, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token at every position."""
        x = self.embedding(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean loss; ``targets`` are token ids ``(rows, seq)``."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def decoder() -> tuple[Decoder, Sizes]:
    """Return the model that is measured, and its sizes; weights are random."""
    sizes = Sizes()
    return Decoder(sizes), sizes
