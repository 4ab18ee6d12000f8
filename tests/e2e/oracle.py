"""What ranks computed, next to what one eager process computed for the same weights."""

import re
from pathlib import Path
from typing import Any

import torch

from tests.e2e import launch

RELATIVE = 5e-6
"""Largest difference allowed between a gradient and the reference's, relative to the largest entry
of that gradient. float32 rounds at 6e-8; fused kernels sum over 2,048 tokens and 6 layers in
another order than eager ones. Measured: 1.6e-6 without a pipeline (one batch of 8 sequences), 4e-7
with one (8 microbatches of 1, added up)."""

EXPERTS_RELATIVE = 2e-2
"""The same for models with experts, which torchtitan computes in bfloat16: it rounds at 2e-3, an
eager expert rounds after each of five operations, and a fused one only in the end. Measured:
5.6e-3."""

Gradients = dict[str, torch.Tensor]


def gradients_of(folder: Path, ranks: int) -> Gradients:
    """Return the first step's gradients of all ranks by FQN, whole."""
    saved: list[dict[str, Any]] = [torch.load(folder / f"rank_{r}.pt") for r in range(ranks)]
    return {name: value for part in saved for name, value in part["gradients"].items()}


def largest_difference(found: Gradients, wanted: Gradients) -> float:
    """Return the largest difference of two gradients, relative to the larger entry of the second.

    Raises:
        AssertionError: if they are not gradients of the same parameters.
    """
    assert found.keys() == wanted.keys()
    return max(
        ((found[name] - wanted[name]).abs().max() / wanted[name].abs().max()).item()
        for name in wanted
    )


def same_gradients(one: Gradients, other: Gradients) -> bool:
    """Tell whether all gradients are equal bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def validation_losses(result: launch.Result) -> list[float]:
    """Return the validation losses that the ranks of the last stage logged."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    found = [float(text) for text in re.findall(r"validate step:.*?loss:\s*(-?[\d.]+)", plain)]
    kept = [loss for loss in found if loss > 0]
    assert kept, result.output[-4000:]
    return kept
