"""What one stage holds in memory between its programs, read from their calling conventions.

The run time keeps values between two calls and frees each with the last call that takes it
(:mod:`pp_precompile.runtime.stage_backward`, :mod:`pp_precompile.runtime.step`). What a program
needs while it runs is its own matter and not counted. A value that is an input passed through, or
another value in another shape (``alias``), costs nothing: what it is counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pp_precompile.contract.program import Kind, ProgramRecord, Value
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.graph.roles import gradients, role_of


@dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes of one stage on one rank.

    For each microbatch: ``saved`` from F to its B or I, ``loss`` likewise (gradients that the loss
    program returns with the loss), ``kept`` from I to W: saved values and gradients of outputs that
    W needs, and what I deferred; None if the build lacks a program for these parts.

    Once a step: ``gathered`` from the first F to the last B or W; ``unreduced`` gradients from the
    first B or W to the last, of which ``unreduced_by_loss`` are there from the first B or I.

    ``at_least``: a size among these depends on data, and counts as 0, or modules of the stage run
    eagerly, or one program is the whole step, and what these keep is not known.
    """

    saved: int
    loss: int
    kept: int | None
    gathered: int
    unreduced: int
    unreduced_by_loss: int
    at_least: bool


def held(stage: StageRecord) -> Held:
    """Return what ``stage`` holds."""
    programs = stage.programs
    loss = _outputs(programs.get("loss"), *_OF_LOSS)
    kept = _kept(stage)
    counted = [*stage.saved, *loss, *(kept or ())]
    once = _once_a_step(programs)
    dynamic = any(value.tensor is not None and value.tensor.dynamic for value in counted)
    return Held(
        saved=stage.saved_bytes,
        loss=_bytes(loss),
        kept=None if kept is None else _bytes(kept),
        **once,
        at_least=dynamic or stage.blocks is not None or stage.returns_gradients,
    )


_OF_LOSS: tuple[Kind, ...] = ("argument_gradient", "parameter_gradient", "unsharded_gradient")


def _kept(stage: StageRecord) -> list[Value] | None:
    """Return what stays between I and W; None if a program for one of them is not there."""
    if stage.blocks is not None:
        return None
    now, later = (role_of(kind, *gradients(stage)) for kind in "IW")
    for role in (now, later):
        if role is not None and role not in stage.programs:
            return None
    if later is None:
        return []
    second = stage.programs[later]
    taken = {value.name for value in second.inputs if value.kind == "saved"}
    forward = stage.programs["forward"].outputs
    wanted = {
        v.alias or f"saved:{v.name}" for v in forward if v.kind == "saved" and v.name in taken
    }
    return [
        *(value for value in stage.saved if f"saved:{value.name}" in wanted),
        *(value for value in second.inputs if value.kind == "tangent"),
        *_outputs(stage.programs.get(now) if now else None, "deferred"),
    ]


def _once_a_step(programs: Mapping[str, ProgramRecord]) -> dict[str, int]:
    """Return the bytes that :class:`~pp_precompile.runtime.step.Step` holds.

    Gradients are held as ``reduce_grad`` takes them.
    """
    reduced = {v.name: v.tensor for v in _inputs(programs.get("reduce_grad"))}
    by_loss = {v.name for v in _outputs(programs.get("loss"), "unsharded_gradient")}
    return {
        "gathered": _bytes(_outputs(programs.get("unshard"), "unsharded")),
        "unreduced": sum(map(_size, reduced.values())),
        "unreduced_by_loss": sum(_size(t) for name, t in reduced.items() if name in by_loss),
    }


def _inputs(program: ProgramRecord | None) -> tuple[Value, ...]:
    return () if program is None else program.inputs


def _outputs(program: ProgramRecord | None, *kinds: Kind) -> list[Value]:
    return [] if program is None else [v for v in program.outputs if v.kind in kinds]


def _bytes(values: Iterable[Value]) -> int:
    return sum(_size(value.tensor) for value in values)


def _size(tensor: TensorSpec | None) -> int:
    """An integer among saved values costs nothing worth counting."""
    return 0 if tensor is None else tensor.nbytes
