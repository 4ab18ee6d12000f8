"""The stored loss program behind the loss function that torchtitan calls."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pp_precompile.contract.errors import LoadError, Where
from pp_precompile.contract.program import Value
from pp_precompile.runtime.binding import Getter, accumulate
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.stage_forward import StageForward
from pp_precompile.stage.private_torch import BoxedCallable

_ARGUMENTS = ("0", "1", "2")
"""Prediction, labels and number of tokens, as the program's inputs name them."""


class StoredLoss:
    """Calls like a torchtitan loss: ``(prediction, labels, global_valid_tokens) -> (loss, {})``.

    Validation calls a loss without ``global_valid_tokens`` and without gradients; that call runs
    the eager loss, which compiles nothing.
    """

    def __init__(
        self,
        stage: LoadedStage,
        forward: StageForward,
        eager: Callable[..., Any],
        wrap: Callable[[torch.Tensor], torch.Tensor] = lambda prediction: prediction,
    ) -> None:
        """Take the last stage, its installed forward (which has the parameters) and the loss.

        ``wrap`` makes of the stage's local output what the eager loss takes, a DTensor with tensor
        parallelism.

        Raises:
            LoadError: PPC305 if the stage holds no loss program.
        """
        if "loss" not in stage.programs:
            raise LoadError(
                "PPC305",
                "the last stage holds no loss program",
                where=Where(stage=stage.record.index, program="loss"),
                hint="build again",
            )
        self._program: BoxedCallable = stage.programs["loss"]
        self._values = stage.record.programs["loss"]
        self._forward = forward
        self._eager = eager
        self._wrap = wrap
        # Made at the first call: the parameters are bound after this object is made.
        self._getters: list[Getter] | None = None

    def use_eager(self, eager: Callable[..., Any]) -> None:
        """Take the trainer's own loss for validation (it knows the live head, if it needs one)."""
        self._eager = eager

    def __getattr__(self, name: str) -> Any:
        """Answer anything else as the eager loss does (``set_lm_head`` and the like)."""
        return getattr(self._eager, name)

    def __call__(
        self,
        prediction: torch.Tensor,
        labels: torch.Tensor,
        global_valid_tokens: torch.Tensor | None = None,
        **inputs: Any,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the scalar loss of one microbatch, and no metrics."""
        if global_valid_tokens is None or not torch.is_grad_enabled():
            return self._eager(self._wrap(prediction), labels, global_valid_tokens, **inputs)
        loss = _LossFunction.apply(self, prediction, labels, global_valid_tokens)
        return loss, {}

    def _run(
        self, arguments: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, list[tuple[Value, torch.Tensor]]]:
        """Return the loss, the gradient of the prediction, and gradients of parameters."""
        if self._getters is None:
            binding = self._forward.binding
            self._getters = binding.getters(self._values.inputs, _ARGUMENTS)
        unsharded = self._forward.step.unsharded()
        with torch.no_grad():
            results = self._program([get(arguments, unsharded) for get in self._getters])
        named = list(zip(self._values.outputs, results, strict=True))
        loss = next(r for v, r in named if v.kind == "output")
        gradient = next(r for v, r in named if v.kind == "argument_gradient")
        parameters = [(v, r) for v, r in named if v.kind not in ("output", "argument_gradient")]
        return loss, gradient, parameters

    def _add(self, value: Value, gradient: torch.Tensor) -> None:
        """Add the gradient of a parameter that the loss reads itself."""
        if value.kind == "unsharded_gradient":
            self._forward.step.add({value.name: gradient})
        else:
            accumulate([(self._forward.binding.parameters[value.name], gradient)])


class _LossFunction(torch.autograd.Function):
    """Value and gradients come from one program; backward only hands the gradients on."""

    @staticmethod
    def forward(ctx: Any, stored: StoredLoss, *arguments: torch.Tensor) -> torch.Tensor:
        loss, gradient, parameters = stored._run([a.detach() for a in arguments])
        ctx.stored, ctx.gradient, ctx.parameters = stored, gradient, parameters
        return loss

    @staticmethod
    def backward(ctx: Any, tangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient, parameters = ctx.gradient, ctx.parameters
        ctx.gradient = ctx.parameters = None
        # Asking a GPU for one number would stall it, so there the product is always taken; a
        # product with one is exact.
        if tangent.device.type != "cpu" or tangent.item() != 1.0:
            gradient = gradient * tangent
            parameters = [(value, result * tangent) for value, result in parameters]
        with torch.no_grad():
            for value, result in parameters:
                ctx.stored._add(value, result)
        return None, gradient, None, None
