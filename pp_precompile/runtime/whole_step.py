"""A stored program that is a whole step: forward, loss and backward of one microbatch."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from pp_precompile.contract.errors import StaleBuildError, Where
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.runtime.binding import Binding, accumulate
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.strides import strided
from pp_precompile.stage.describe import describe, local_tensor


class WholeStep:
    """The only stage of a pipeline, whose forward returns the loss and all gradients."""

    def __init__(self, stage: LoadedStage, module: nn.Module) -> None:
        """Bind the program to ``module``, which has its weights.

        Raises:
            StaleBuildError: PPC103 if it is not the module that the stage was compiled for.
        """
        record = stage.record
        program = record.programs["forward"]
        self._index = record.index
        self._binding = Binding(module, record)
        self._program = stage.programs["forward"]
        given = ("argument", "keyword", "loss_argument")
        self._expected = {v.name: v.tensor for v in program.inputs if v.kind in given}
        self._getters = self._binding.getters(program.inputs, list(self._expected))
        self._outputs = program.outputs

    def __call__(
        self,
        arguments: Sequence[torch.Tensor],
        keywords: Mapping[str, torch.Tensor],
        loss_arguments: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Run the step, add to the parameters' gradients, and return the loss, a scalar.

        ``loss_arguments`` are what the loss takes behind the prediction.

        Raises:
            StaleBuildError: PPC104 if the inputs are not those that the step was compiled for.
        """
        given = {str(position): value for position, value in enumerate(arguments)}
        given |= {name: value for name, value in keywords.items() if value is not None}
        given |= {str(position): value for position, value in enumerate(loss_arguments, 1)}
        values = self._checked(given)
        with torch.no_grad():
            results = self._program([get(values, {}) for get in self._getters])
            return self._taken(results)

    def _checked(self, given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return the inputs in the program's order; what the program does not read may be there."""
        missing = sorted(self._expected.keys() - given.keys())
        if missing:
            raise self._stale("its inputs", sorted(self._expected), sorted(given))
        return [self._fitting(name, spec, given[name]) for name, spec in self._expected.items()]

    def _fitting(self, name: str, spec: TensorSpec | None, value: torch.Tensor) -> torch.Tensor:
        assert spec is not None
        if tuple(value.shape) != spec.shape or str(value.dtype) != f"torch.{spec.dtype}":
            raise self._stale(f"input {name}", spec, describe(value))
        return strided(value, spec)

    def _taken(self, results: Sequence[torch.Tensor]) -> torch.Tensor:
        """Put gradients and changed buffers in their places; returns the loss."""
        loss, gradients = None, []
        for value, result in zip(self._outputs, results, strict=True):
            if value.kind == "output":
                loss = result
            elif value.kind == "parameter_gradient":
                gradients.append((self._binding.parameters[value.name], result))
            else:
                local_tensor(self._binding.buffers[value.name]).copy_(result)
        accumulate(gradients)
        assert loss is not None
        return loss

    def _stale(self, what: str, expected: object, found: object) -> StaleBuildError:
        return StaleBuildError(
            "PPC104",
            f"{what} of the step are not what it was compiled for",
            where=Where(stage=self._index, field=what.removeprefix("input ")),
            expected=expected,
            found=found,
            hint="batch and sequence sizes are part of a build: build for this shape",
        )
