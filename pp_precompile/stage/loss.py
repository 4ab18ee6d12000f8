"""A loss as a module, so that it is traced, compiled and stored like a stage."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pp_precompile.contract.errors import CompileError


class LossModule(nn.Module):
    """Calls ``loss_fn(prediction, labels, global_valid_tokens)`` and returns its scalar.

    ``head`` is a module that the loss calls itself (torchtitan's chunked loss applies ``lm_head``
    chunk by chunk); it keeps the FQN ``head_name``, so that its parameters bind like the stage's.
    """

    def __init__(
        self, loss_fn: Callable[..., Any], *, head: nn.Module | None = None, head_name: str = ""
    ) -> None:
        """Keep ``loss_fn``; register ``head`` so that its parameters are inputs of the program."""
        super().__init__()
        self._loss_fn = loss_fn
        if head is not None:
            self.add_module(head_name, head)

    def forward(
        self, prediction: torch.Tensor, labels: torch.Tensor, global_valid_tokens: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of one microbatch, a scalar."""
        loss, metrics = self._loss_fn(prediction, labels, global_valid_tokens)
        if metrics:
            raise CompileError(
                "PPC301",
                "the loss returns metrics beside the scalar, which a stored program cannot",
                expected="no metrics",
                found=sorted(metrics),
                hint="use a loss without metrics, or train without --compile.precompile",
            )
        return loss
