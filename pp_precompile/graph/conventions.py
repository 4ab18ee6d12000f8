"""Programs name only what their stage has, and describe it as the stage does."""

from collections.abc import Iterator
from typing import NamedTuple

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import Kind, ProgramRecord, Value
from pp_precompile.contract.stage import Unit
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.graph import tensors
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.parts import Part, parts

INPUTS: dict[str, tuple[Kind, ...]] = {
    "unshard": ("parameter",),
    "forward": (
        *("parameter", "unsharded", "buffer", "argument", "keyword", "loss_argument"),
        "coordinate",
    ),
    "loss": ("parameter", "unsharded", "buffer", "argument", "coordinate"),
    "backward": ("unsharded", "saved", "tangent"),
    "backward_input": ("unsharded", "saved", "tangent"),
    "backward_weight": ("unsharded", "saved", "tangent", "deferred"),
    "reduce_grad": ("unsharded_gradient",),
    "overlap": (
        *("saved", "tangent"),
        *("parameter", "buffer", "argument", "keyword", "loss_argument"),
    ),
}
OUTPUTS: dict[str, tuple[Kind, ...]] = {
    "unshard": ("unsharded",),
    "forward": ("output", "saved", "buffer_update", "parameter_gradient"),
    "loss": ("output", "parameter_gradient", "argument_gradient", "unsharded_gradient"),
    "backward": ("parameter_gradient", "argument_gradient", "unsharded_gradient"),
    "backward_input": ("argument_gradient", "deferred"),
    "backward_weight": ("parameter_gradient", "unsharded_gradient"),
    "reduce_grad": ("parameter_gradient",),
    "overlap": ("parameter_gradient", "argument_gradient", "output", "saved", "buffer_update"),
}
"""The kinds of values that a program of each role may take and return."""

_Known = dict[str, dict[str, TensorSpec]]


class _Side(NamedTuple):
    """The inputs or the outputs of one program."""

    part: Part
    role: str
    word: str
    values: tuple[Value, ...]
    kinds: tuple[Kind, ...]

    def at(self, value: Value) -> Where:
        field = f"{self.word} {value.kind} {value.name}"
        return self.part.at(self.role, field)


def check_conventions(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC505 for a value that the stage has not, PPC506 for one that it describes unlike."""
    for part in parts(manifest):
        known = _known(part.record)
        for role, program in part.record.programs.items():
            inputs = _Side(part, role, "input", program.inputs, INPUTS.get(role, ()))
            outputs = _Side(part, role, "output", program.outputs, OUTPUTS.get(role, ()))
            for side in (inputs, outputs):
                yield from _check(side, _known_to(role, known, program))
        yield from _complete(part)


def _known_to(role: str, known: _Known, program: ProgramRecord) -> _Known:
    """Return what is compared; ``overlap.py`` looks at values of two stages."""
    if role == "overlap":
        return {}
    return _of_loss(known, program) if role == "loss" else known


def _check(side: _Side, known: _Known) -> Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for value in side.values:
        if value.kind not in side.kinds:
            yield _unknown(side, value, f"values of kind {listed(side.kinds)}", value.kind)
        elif (value.kind, value.name) in seen:
            yield _unknown(side, value, "each value once", f"{value.name} twice")
        elif value.kind in known:
            yield from _described(side, value, known[value.kind])
        seen.add((value.kind, value.name))


def _described(side: _Side, value: Value, known: dict[str, TensorSpec]) -> Iterator[Finding]:
    spec = known.get(value.name)
    if spec is None:
        yield _unknown(side, value, f"one of {listed(known)}", value.name)
    elif not _alike(value, spec):
        yield Finding(
            code="PPC506",
            message=f"{side.role} of {side.part.title} describes {value.kind} {value.name} "
            "unlike its stage",
            where=side.at(value),
            expected=tensors.text(spec),
            found=tensors.text(value.tensor),
        )


def _alike(value: Value, spec: TensorSpec) -> bool:
    tensor = value.tensor
    if value.kind in ("unsharded", "unsharded_gradient"):
        # Gathering changes shape and type; ``handover.py`` compares the programs with each other.
        return tensor is not None
    if tensor is not None and value.kind == "parameter_gradient":
        # It is copied where its strides are not those of the parameter.
        return (tensor.shape, tensor.dtype, tensor.device) == (spec.shape, spec.dtype, spec.device)
    return tensors.same(tensor, spec)


def _complete(part: Part) -> Iterator[Finding]:
    """What the part is called with and returns must all be known to its forward."""
    stage = part.record
    forward = stage.programs["forward"]
    returned = sorted(tensors.by_name(forward, "output", outputs=True))
    expected = sorted(str(position) for position in range(len(stage.outputs)))
    if returned != expected:
        yield Finding(
            code="PPC505",
            message=f"forward of {part.title} does not return its outputs",
            where=part.at("forward", "outputs"),
            expected=f"outputs {listed(expected)}",
            found=f"outputs {listed(returned)}",
        )


def _known(stage: Unit) -> _Known:
    parameters = {item.name: item.tensor for item in stage.parameters}
    buffers = {item.name: item.tensor for item in stage.buffers}
    arguments = {item.name: item.tensor for item in stage.arguments}
    outputs = {str(position): tensor for position, tensor in enumerate(stage.outputs)}
    return {
        "parameter": parameters,
        "parameter_gradient": parameters,
        "unsharded": parameters,
        "unsharded_gradient": parameters,
        "buffer": buffers,
        "buffer_update": buffers,
        "argument": arguments,
        "argument_gradient": {n: t for n, t in arguments.items() if t.requires_grad},
        "keyword": {item.name: item.tensor for item in stage.keywords},
        "output": outputs,
        "tangent": outputs,
    }


def _of_loss(known: _Known, loss: ProgramRecord) -> _Known:
    """The loss has arguments of its own (``loss.py`` checks them) and the stage's state."""
    arguments = {v.name: v.tensor for v in loss.inputs if v.kind == "argument" and v.tensor}
    state = ("parameter", "parameter_gradient", "unsharded", "unsharded_gradient", "buffer")
    return {kind: known[kind] for kind in state} | {"argument_gradient": arguments}


def _unknown(side: _Side, value: Value, expected: str, found: str) -> Finding:
    return Finding(
        code="PPC505",
        message=f"{side.role} of {side.part.title} has an {side.word} that cannot be bound",
        where=side.at(value),
        expected=expected,
        found=found,
    )
