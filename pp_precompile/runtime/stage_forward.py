"""A stage's stored programs behind the call of an ordinary module.

``torch.distributed.pipelining.PipelineStage``, torchtitan's Trainer and its validator call the
module as always; its ``forward`` runs the stored forward program, and autograd the stored
backward program. Gradients of parameters are added to ``.grad`` directly.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from pp_precompile.contract.errors import PrecompileError, StaleBuildError, Where
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.graph.roles import gradients
from pp_precompile.runtime.binding import Binding, Getter, Unsharded
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.stage_backward import StageBackward, Values, nothing
from pp_precompile.runtime.step import Microbatch, Step
from pp_precompile.runtime.strides import strided
from pp_precompile.stage.describe import local_tensor


def install(module: nn.Module, stage: LoadedStage) -> "StageForward":
    """Make ``module`` run ``stage``'s programs from now on; returns what was installed.

    Parameters and buffers may still be on meta: they are bound by :meth:`StageForward.bind`.
    """
    forward = StageForward(stage)
    module.forward = forward
    return forward


class StageForward:
    """What runs in place of a stage module's ``forward``."""

    def __init__(self, stage: LoadedStage) -> None:
        """Take a loaded stage; it runs nothing until :meth:`bind` was called."""
        record = stage.record
        self._stage = stage
        self._index = record.index
        self._arguments = record.arguments
        self._keywords = {item.name: item for item in record.keywords}
        self._names = [item.name for item in (*record.arguments, *record.keywords)]
        self._inputs = record.programs["forward"].inputs
        self._values = record.programs["forward"].outputs
        self._program = stage.programs["forward"]
        self._is_trained = any(gradients(record))
        self._getters: list[Getter] | None = None
        self._anchor = torch.empty((), requires_grad=True)
        self._weights_later = False
        self._of_weights: Callable[[], None] = nothing

    def bind(self, module: nn.Module, *, microbatches: int = 1) -> None:
        """Bind the programs to ``module``'s parameters and buffers.

        ``microbatches`` is the number of microbatches in a step.

        Raises:
            StaleBuildError: PPC103 if they are not those that the stage was compiled for.
        """
        self.binding = Binding(module, self._stage.record)
        self.step = Step(self._stage, self.binding, microbatches)
        self._backward = StageBackward(self._stage, self.binding, self.step)
        self._getters = self.binding.getters(self._inputs, self._names)

    @contextlib.contextmanager
    def weights_later(self) -> Iterator[None]:
        """Compute only the gradients of the inputs in backwards that run inside."""
        self._weights_later = True
        try:
            yield
        finally:
            self._weights_later = False

    def take_of_weights(self) -> Callable[[], None]:
        """Return what computes the weights' gradients of the last backward; nothing if done.

        This is the ``dw_builder`` of ``torch.distributed.pipelining.PipelineStage``.
        """
        of_weights, self._of_weights = self._of_weights, nothing
        return of_weights

    def __call__(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        """Run the stage on one microbatch, as its module would.

        Raises:
            StaleBuildError: PPC104 if the inputs are not those that the stage was compiled for.
        """
        if self._getters is None:
            raise PrecompileError(
                "PPC103",
                "the stage runs before its parameters were bound",
                where=Where(stage=self._index),
                hint="call bind(module) once the module has its weights",
            )
        arguments = self._checked(args, kwargs)
        if torch.is_grad_enabled() and self._is_trained:
            outputs = _StageFunction.apply(self, self._anchor, *arguments)
        else:
            outputs, _ = self._run_forward(arguments, self.step.unsharded())
        return outputs[0] if len(outputs) == 1 else outputs

    def _checked(
        self, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]
    ) -> list[torch.Tensor]:
        present = {name: value for name, value in kwargs.items() if value is not None}
        if len(args) != len(self._arguments) or present.keys() != self._keywords.keys():
            raise StaleBuildError(
                "PPC104",
                "the stage is called with another set of inputs than it was compiled for",
                where=Where(stage=self._index),
                expected=f"{len(self._arguments)} positional and {sorted(self._keywords)}",
                found=f"{len(args)} positional and {sorted(present)}",
                hint="inputs that a stage was compiled without cannot appear later: build again",
            )
        pairs = [*zip(self._arguments, args, strict=True)]
        pairs += [(item, present[name]) for name, item in self._keywords.items()]
        return [_checked_tensor(item, value, self._index) for item, value in pairs]

    def _run_forward(
        self, arguments: Sequence[torch.Tensor], unsharded: Unsharded
    ) -> tuple[tuple[torch.Tensor, ...], Values]:
        """Run the forward program; returns the outputs, and what backward needs of them."""
        inputs = [get(arguments, unsharded) for get in self._getters or ()]
        outputs, saved = [], Values()
        with torch.no_grad():
            for value, result in zip(self._values, self._program(inputs), strict=True):
                if value.kind == "output":
                    outputs.append(result)
                elif value.kind == "saved":
                    saved["saved", value.name] = result
                else:
                    local_tensor(self.binding.buffers[value.name]).copy_(result)
        return tuple(outputs), saved

    def _run_backward(
        self, values: Values, tangents: Sequence[torch.Tensor | None], microbatch: Microbatch
    ) -> dict[str, torch.Tensor]:
        """Run the backward, or its part for the inputs; returns the arguments' gradients."""
        if not self._weights_later:
            return self._backward.whole(values, tangents, microbatch)
        result, self._of_weights = self._backward.of_inputs(values, tangents, microbatch)
        return result


class _StageFunction(torch.autograd.Function):
    """Connects a stage's programs to autograd.

    ``anchor`` requires a gradient and gets none: it makes autograd call the backward of a first
    stage, whose own inputs are token ids.
    """

    @staticmethod
    def forward(
        ctx: Any, stage: StageForward, anchor: torch.Tensor, *arguments: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.stage, ctx.microbatch = stage, stage.step.forward()
        detached = [argument.detach() for argument in arguments]
        outputs, ctx.values = stage._run_forward(detached, stage.step.unsharded())
        return outputs

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        stage, values, microbatch = ctx.stage, ctx.values, ctx.microbatch
        ctx.values = ctx.microbatch = None
        of_arguments = stage._run_backward(values, tangents, microbatch)
        return (None, None, *(of_arguments.get(name) for name in stage._names))


def _checked_tensor(item: NamedTensor, value: torch.Tensor, stage: int) -> torch.Tensor:
    spec = item.tensor
    local = local_tensor(value)
    if tuple(local.shape) != spec.shape or str(local.dtype) != f"torch.{spec.dtype}":
        raise StaleBuildError(
            "PPC104",
            f"input {item.name} is not what the stage was compiled for",
            where=Where(stage=stage, field=item.name),
            expected=spec,
            found=f"{str(local.dtype).removeprefix('torch.')}{list(local.shape)}",
            hint="batch and sequence sizes are part of a build: build for this shape",
        )
    return value if local.stride() == spec.stride else strided(value, spec)
