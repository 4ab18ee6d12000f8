"""What a stage gathers once a step, and reduces once a step.

A step begins with the stage's first forward and ends with its last backward; in between the
gathered parameters and the summed gradients stay in memory. Only the number of microbatches says
when that is, so that no schedule has to know about it.
"""

import weakref
from collections.abc import Mapping

import torch

from pp_precompile.contract.errors import PrecompileError, Where
from pp_precompile.runtime.binding import Binding, accumulate
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.strides import strided


class Microbatch:
    """One microbatch between its forward and the end of its backward."""


class Step:
    """Gathered parameters and summed gradients of one stage.

    A stage without ``unshard`` and ``reduce_grad`` programs has none of either.
    """

    def __init__(self, stage: LoadedStage, binding: Binding, microbatches: int) -> None:
        """Start before the first forward of a step of ``microbatches`` microbatches."""
        self._programs = stage.programs
        self._records = stage.record.programs
        self._where = Where(stage=stage.record.index)
        self._binding = binding
        self._microbatches = microbatches
        self._counts = not {"unshard", "reduce_grad"}.isdisjoint(self._records)
        reduce = self._records.get("reduce_grad")
        self._specs = {v.name: v.tensor for v in reduce.inputs if v.tensor} if reduce else {}
        self._unsharded: dict[str, torch.Tensor] | None = None
        self._gradients: dict[str, torch.Tensor] = {}
        self._open: weakref.WeakSet[Microbatch] = weakref.WeakSet()
        self._started = self._done = 0

    def unsharded(self) -> Mapping[str, torch.Tensor]:
        """Return the gathered parameters by FQN: those of this step, or outside of one anew."""
        if self._unsharded is not None and (self._open or self._done):
            return self._unsharded
        if "unshard" not in self._records:
            return {}
        record = self._records["unshard"]
        shards = [get((), {}) for get in self._binding.getters(record.inputs, ())]
        with torch.no_grad():
            whole = self._programs["unshard"](shards)
        return {value.name: t for value, t in zip(record.outputs, whole, strict=True)}

    def forward(self) -> Microbatch:
        """Begin a microbatch; the first one of a step gathers.

        Raises:
            PrecompileError: PPC106 if the step has no microbatch left.
        """
        microbatch = Microbatch()
        if not self._counts:
            return microbatch
        if self._done == 0 and not self._open:
            # A new step, also where forwards before it never got their backward.
            self._started, self._unsharded = 0, dict(self.unsharded())
        if self._started == self._microbatches:
            raise PrecompileError(
                "PPC106",
                "a stage runs more microbatches than a step has",
                where=self._where,
                expected=f"{self._microbatches} forwards and backwards in a step",
                found=f"one more forward after {self._done} backwards",
                hint="finish the step first, or run forward under torch.no_grad()",
            )
        self._started += 1
        self._open.add(microbatch)
        return microbatch

    def add(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Add gradients by FQN that have yet to be reduced."""
        known = [name for name in gradients if name in self._gradients]
        if known:
            sums = [self._gradients[name] for name in known]
            torch._foreach_add_(sums, [gradients[name] for name in known])
        for name in gradients.keys() - set(known):
            self._gradients[name] = strided(gradients[name], self._specs[name])

    def end(self, microbatch: Microbatch) -> None:
        """End a microbatch; the last one of a step reduces, and frees what was gathered."""
        if not self._counts:
            return
        self._open.discard(microbatch)
        self._done += 1
        if self._done < self._microbatches:
            return
        self._started = self._done = 0
        self._unsharded = None
        record = self._records.get("reduce_grad")
        if record is None:
            return
        summed = [self._gradients.pop(value.name) for value in record.inputs]
        with torch.no_grad():
            reduced = self._programs["reduce_grad"](summed)
            parameters = [self._binding.parameters[value.name] for value in record.outputs]
            accumulate(list(zip(parameters, reduced, strict=True)))
