"""Gradients for exactly the parameters that require one, each on one path."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import Kind
from pp_precompile.contract.stage import Unit
from pp_precompile.graph.finding import Finding
from pp_precompile.graph.parts import parts
from pp_precompile.graph.roles import backward_ways


class _Given(NamedTuple):
    """The parameters that one way of a stage's backward gives gradients for."""

    directly: set[str]
    to_reduce: set[str]
    reduced: set[str]

    def text(self, name: str) -> str:
        """Say which path the gradient of a parameter takes, and how it is not one."""
        if name in self.directly:
            both = name in self.to_reduce or name in self.reduced
            return "a gradient both directly and through reduce_grad" if both else "a gradient"
        if (name in self.to_reduce) != (name in self.reduced):
            return "a gradient that " + (
                "reduce_grad does not return" if name in self.to_reduce else "only reduce_grad has"
            )
        return "a gradient" if name in self.reduced else "no gradient"


def check_parameter_gradients(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC507 for a parameter that lacks a gradient, or gets one that it must not have.

    A gradient comes from a backward (whole or in parts), the loss, or a forward that is the whole
    step, either as it is or by way of reduce_grad. A parameter that no program reads is a warning:
    training leaves it as it is, with or without us.
    """
    for part in parts(manifest):
        stage = part.record
        read = _names(stage, stage.programs, "parameter", outputs=False)
        read |= _names(stage, stage.programs, "unsharded", outputs=False)
        ways = [_given(stage, way) for way in backward_ways(stage) or ((),)]
        for item in stage.parameters:
            expected = "a gradient" if item.tensor.requires_grad else "no gradient"
            found = next((t for way in ways if (t := way.text(item.name)) != expected), expected)
            if found == expected:
                continue
            unused = found == "no gradient" and item.name not in read
            yield Finding(
                code="PPC507",
                message=f"parameter {item.name} of {part.title} "
                + ("is not used" if unused else "has no right gradient"),
                where=part.at(field=item.name),
                expected=expected,
                found=found,
                hint="remove it from the model, or freeze it" if unused else "build again",
                severity="warning" if unused else "error",
            )


def _given(stage: Unit, way: tuple[str, ...]) -> _Given:
    makers = ("forward", *way, "loss")
    return _Given(
        directly=_names(stage, makers, "parameter_gradient", outputs=True),
        to_reduce=_names(stage, makers, "unsharded_gradient", outputs=True),
        reduced=_names(stage, ("reduce_grad",), "parameter_gradient", outputs=True),
    )


def _names(stage: Unit, roles: Iterable[str], kind: Kind, *, outputs: bool) -> set[str]:
    return {
        value.name
        for role in roles
        if (program := stage.programs.get(role)) is not None
        for value in (program.outputs if outputs else program.inputs)
        if value.kind == kind
    }
