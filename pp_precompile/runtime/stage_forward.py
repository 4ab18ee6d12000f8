"""A stage's stored programs behind the call of an ordinary module.

``torch.distributed.pipelining.PipelineStage``, torchtitan's Trainer and its validator call the
module as always; its ``forward`` runs the stored forward program, and autograd the stored
backward program. Gradients of parameters are added to ``.grad`` directly.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from pp_precompile.contract.errors import PrecompileError, StaleBuildError, Where
from pp_precompile.contract.program import Value
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.runtime.binding import Binding, Getter, accumulate
from pp_precompile.runtime.loader import LoadedStage
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
        forward = record.programs["forward"]
        self._outputs = _positions(forward.outputs, "output")
        self._saved = _positions(forward.outputs, "saved")
        self._updates = _positions(forward.outputs, "buffer_update")
        self._forward_values = forward
        self._forward = stage.programs["forward"]
        self._backward = stage.programs.get("backward")
        self._getters: list[Getter] | None = None
        self._anchor = torch.empty((), requires_grad=True)

    def bind(self, module: nn.Module) -> None:
        """Bind the programs to ``module``'s parameters and buffers.

        Raises:
            StaleBuildError: PPC103 if they are not those that the stage was compiled for.
        """
        record = self._stage.record
        self._binding = Binding(module, record)
        self._getters = self._binding.getters(self._forward_values.inputs, self._names)
        if "backward" in record.programs:
            self._prepare_backward(record.programs["backward"].inputs)
            self._gradients = record.programs["backward"].outputs

    def _prepare_backward(self, inputs: Sequence[Value]) -> None:
        """Find each backward input among the saved values and the gradients of the outputs."""
        values = self._forward_values.outputs
        saved = {values[p].name: i for i, p in enumerate(self._saved)}
        self._backward_sources = [
            (True, int(value.name)) if value.kind == "tangent" else (False, saved[value.name])
            for value in inputs
        ]

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
        if torch.is_grad_enabled() and self._backward is not None:
            outputs = _StageFunction.apply(self, self._anchor, *arguments)
        else:
            outputs, _ = self._run_forward(arguments)
            outputs = tuple(outputs)
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
        self, arguments: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[Any]]:
        with torch.no_grad():
            results = self._forward([get(arguments) for get in self._getters or ()])
            for position in self._updates:
                name = self._forward_values.outputs[position].name
                local_tensor(self._binding.buffers[name]).copy_(results[position])
        return [results[p] for p in self._outputs], [results[p] for p in self._saved]

    def _run_backward(
        self, saved: Sequence[Any], tangents: Sequence[torch.Tensor | None]
    ) -> dict[str, torch.Tensor]:
        """Run the backward program; returns the gradients of the arguments by name."""
        assert self._backward is not None
        inputs = [
            self._tangent(tangents, index) if is_tangent else saved[index]
            for is_tangent, index in self._backward_sources
        ]
        gradients: dict[str, torch.Tensor] = {}
        with torch.no_grad():
            for value, result in zip(self._gradients, self._backward(inputs), strict=True):
                if value.kind == "parameter_gradient":
                    accumulate(self._binding.parameters[value.name], result)
                else:
                    gradients[value.name] = result
        return gradients

    def _tangent(self, tangents: Sequence[torch.Tensor | None], index: int) -> torch.Tensor:
        """Return the gradient of an output in the layout that the program was compiled for."""
        tangent = tangents[index]
        spec = self._stage.record.outputs[index]
        if tangent is None:
            return torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=spec.device)
        return tangent if tangent.stride() == spec.stride else _strided(tangent, spec)


class _StageFunction(torch.autograd.Function):
    """Connects a stage's programs to autograd.

    ``anchor`` requires a gradient and gets none: it makes autograd call the backward of a first
    stage, whose own inputs are token ids.
    """

    @staticmethod
    def forward(
        ctx: Any, stage: StageForward, anchor: torch.Tensor, *arguments: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        outputs, saved = stage._run_forward([a.detach() for a in arguments])
        ctx.stage, ctx.saved = stage, saved
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        stage, saved = ctx.stage, ctx.saved
        ctx.saved = None
        gradients = stage._run_backward(saved, tangents)
        return (None, None, *(gradients.get(name) for name in stage._names))


def _positions(values: Sequence[Value], kind: str) -> list[int]:
    return [position for position, value in enumerate(values) if value.kind == kind]


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
    return value if local.stride() == spec.stride else _strided(value, spec)


def _strided(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Copy ``tensor`` into the stride that a program was compiled for."""
    copy = torch.empty_strided(spec.shape, spec.stride, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)
