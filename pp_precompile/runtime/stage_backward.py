"""A stage's backward: whole, or the gradients of its inputs now and those of its weights later."""

from collections.abc import Callable, Sequence

import torch

from pp_precompile.contract.program import Kind, ProgramRecord, Role
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.graph.roles import gradients, role_of
from pp_precompile.runtime.binding import Binding, accumulate
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.step import Microbatch, Step
from pp_precompile.runtime.strides import strided

Values = dict[tuple[Kind, str], torch.Tensor]
"""The values of one microbatch by kind and name."""


def nothing() -> None:
    """Do what is left to do for the weights after a whole backward."""


class StageBackward:
    """Runs the backward programs of one stage, and adds the gradients to the parameters."""

    def __init__(self, stage: LoadedStage, binding: Binding, step: Step) -> None:
        """Take a loaded stage whose parameters are bound."""
        self._programs = stage.programs
        self._records = stage.record.programs
        self._outputs = stage.record.outputs
        self._binding = binding
        self._step = step
        arguments, parameters = gradients(stage.record)
        self._role_of: dict[str, Role | None] = {
            kind: role_of(kind, arguments, parameters) for kind in "BIW"
        }
        self._takes = {
            role: [(value.kind, value.name) for value in record.inputs]
            for role, record in self._records.items()
        }

    def whole(
        self, values: Values, tangents: Sequence[torch.Tensor | None], microbatch: Microbatch
    ) -> dict[str, torch.Tensor]:
        """Run the whole backward; returns the gradients of the arguments by name.

        ``values`` are the saved ones, and are emptied, so that each is freed after its last use.
        """
        self._complete(values, tangents)
        result: dict[str, torch.Tensor] = {}
        role = self._role_of["B"]
        if role is not None:
            result = self._run(role, values, {})
        self._step.end(microbatch)
        return result

    def of_inputs(
        self, values: Values, tangents: Sequence[torch.Tensor | None], microbatch: Microbatch
    ) -> tuple[dict[str, torch.Tensor], Callable[[], None]]:
        """Compute the gradients of the arguments now; returns them, and what computes the others.

        Only what the weights' gradients still need is kept until then.
        """
        self._complete(values, tangents)
        now, later = self._role_of["I"], self._role_of["W"]
        wanted = self._takes[later] if later is not None else []
        kept: Values = {key: values[key] for key in wanted if key in values}
        result = self._run(now, values, kept) if now is not None else {}
        values.clear()

        def of_weights() -> None:
            if later is not None:
                self._run(later, kept, {})
            self._step.end(microbatch)

        return result, of_weights

    def _complete(self, values: Values, tangents: Sequence[torch.Tensor | None]) -> None:
        for position, (tangent, spec) in enumerate(zip(tangents, self._outputs, strict=True)):
            values["tangent", str(position)] = _tangent(tangent, spec)
        for name, parameter in self._step.unsharded().items():
            values["unsharded", name] = parameter

    def _run(self, role: Role, values: Values, kept: Values) -> dict[str, torch.Tensor]:
        """Run one program on ``values``, which is emptied; deferred values go to ``kept``."""
        inputs = [values[key] for key in self._takes[role]]
        values.clear()
        with torch.no_grad():
            results = self._programs[role](inputs)
            return self._distribute(self._records[role], results, kept)

    def _distribute(
        self, record: ProgramRecord, results: Sequence[torch.Tensor], kept: Values
    ) -> dict[str, torch.Tensor]:
        of_arguments: dict[str, torch.Tensor] = {}
        of_parameters = []
        unsharded: dict[str, torch.Tensor] = {}
        for value, result in zip(record.outputs, results, strict=True):
            if value.kind == "parameter_gradient":
                of_parameters.append((self._binding.parameters[value.name], result))
            elif value.kind == "unsharded_gradient":
                unsharded[value.name] = result
            elif value.kind == "deferred":
                kept["deferred", value.name] = result
            else:
                of_arguments[value.name] = result
        accumulate(of_parameters)
        self._step.add(unsharded)
        return of_arguments


def _tangent(tangent: torch.Tensor | None, spec: TensorSpec) -> torch.Tensor:
    """Return the gradient of an output in the layout that the programs were compiled for."""
    if tangent is None:
        return torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=spec.device)
    return strided(tangent, spec)
