"""Measure what stages hold between the actions of a step, on the live tensors themselves.

Counted are storages, each once: those of saved values from the forward program on for as long as
anybody keeps the tensor, those of the loss's gradients likewise, and what a backward in two parts
keeps for its second one. Gathered parameters and gradients to reduce are counted beside them.
Values that are inputs passed through belong to somebody else and are left out.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

Bytes = dict[str, int]
"""The most of ``activations``, of ``gathered`` and of ``both`` at once; ``left`` at the end."""


class Meter:
    """Records a step's peaks into ``steps``, one after the other."""

    def __init__(self) -> None:
        self.steps: list[Bytes] = []
        self._tensors: list[weakref.ref[torch.Tensor]] = []
        self._kept: list[dict[tuple[str, str], torch.Tensor]] = []
        self._once: weakref.WeakSet[Any] = weakref.WeakSet()
        self._peaks: Bytes = {}
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        self._peaks = {"activations": 0, "gathered": 0, "both": 0}

    def end(self) -> None:
        """End a step."""
        self.steps.append({**self._peaks, "left": sum(self._held())})

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count these from now on, while anybody keeps them."""
        self._tensors += [weakref.ref(tensor) for tensor in tensors]

    def keep(self, values: dict[tuple[str, str], torch.Tensor]) -> None:
        """Count these from now on, while they are in ``values``."""
        self._kept.append(values)

    def gather(self, step: Any) -> None:
        """Count what a ``Step`` holds, now and later; this can be most inside an action."""
        self._once.add(step)
        self._note(gathered=self._held()[1])

    def between_actions(self) -> None:
        """Look at what there is after an action."""
        activations, gathered = self._held()
        self._note(activations=activations, gathered=gathered, both=activations + gathered)

    def _note(self, **found: int) -> None:
        self._peaks |= {name: max(size, self._peaks[name]) for name, size in found.items()}

    def _held(self) -> tuple[int, int]:
        self._tensors = [ref for ref in self._tensors if ref() is not None]
        self._kept = [values for values in self._kept if values]
        gathered = _storages(
            tensor
            for step in self._once
            for part in (step._unsharded or {}, step._gradients)
            for tensor in part.values()
        )
        held = _storages(tensor for ref in self._tensors if (tensor := ref()) is not None)
        held |= _storages(tensor for values in self._kept for tensor in values.values())
        activations = sum(size for place, size in held.items() if place not in gathered)
        return activations, sum(gathered.values())


def _storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def record_held(meter: Meter) -> None:
    """Make stages, losses and schedules of this process report to ``meter``."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineSchedule
    from torchtitan.trainer import Trainer

    from pp_precompile.runtime.pipeline_stage import PrecompiledStage
    from pp_precompile.runtime.stage_backward import StageBackward
    from pp_precompile.runtime.stage_forward import StageForward
    from pp_precompile.runtime.step import Step
    from pp_precompile.runtime.stored_loss import StoredLoss

    def own(stage: StageForward) -> set[str]:
        return {v.name for v in stage._values if v.kind == "saved" and v.alias is None}

    def saved(stage: StageForward, result: Any) -> None:
        meter.hold(tensor for (_, name), tensor in result[1].items() if name in own(stage))

    def loss(stored: StoredLoss, result: Any) -> None:
        _, gradient, parameters = result
        meter.hold([gradient, *(tensor for _, tensor in parameters)])

    def kept(backward: StageBackward, result: Any) -> None:
        forward = backward._records["forward"]
        passed = {v.name for v in forward.outputs if v.kind == "saved" and v.alias is not None}
        cells = dict(zip(result[1].__code__.co_freevars, result[1].__closure__ or (), strict=True))
        values = cells["kept"].cell_contents
        assert {kind for kind, _ in values} <= {"saved", "tangent", "deferred", "unsharded"}
        meter.keep(_Without(values, passed))

    _after(StageForward, "_run_forward", saved)
    _after(StoredLoss, "_run", loss)
    _after(StageBackward, "of_inputs", kept)
    for method in ("forward", "add", "end"):
        _after(Step, method, lambda step, _: meter.gather(step))
    for owner, method in (
        (PipelineStage, "forward_one_chunk"),
        (_PipelineSchedule, "_maybe_compute_loss"),
        (PrecompiledStage, "backward_one_chunk"),
        (PipelineStage, "backward_weight_one_chunk"),
    ):
        _after(owner, method, lambda *_: meter.between_actions())
    _around_step(Trainer, meter)


class _Without(dict[tuple[str, str], torch.Tensor]):
    """A live view of ``values`` without what belongs to others."""

    def __init__(self, values: dict[tuple[str, str], torch.Tensor], passed: set[str]) -> None:
        super().__init__()
        self._values, self._passed = values, passed

    def __bool__(self) -> bool:
        return bool(self._values)

    def values(self) -> Any:
        return [
            tensor
            for (kind, name), tensor in self._values.items()
            if kind != "unsharded" and not (kind == "saved" and name in self._passed)
        ]


def _after(owner: type, method: str, look: Callable[[Any, Any], object]) -> None:
    original = getattr(owner, method)

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        look(self, result)
        return result

    setattr(owner, method, patched)


def _around_step(trainer: Any, meter: Meter) -> None:
    original = trainer.forward_backward_step

    def step(self: Any, **inputs: Any) -> Any:
        meter.begin()
        result = original(self, **inputs)
        meter.end()
        return result

    trainer.forward_backward_step = step
