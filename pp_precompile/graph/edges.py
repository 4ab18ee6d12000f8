"""What a stage returns is what the next one takes, forward and backward."""

import itertools
from collections.abc import Iterable, Iterator

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import Role
from pp_precompile.contract.stage import Unit
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.graph import tensors
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.parts import Part, links
from pp_precompile.graph.roles import backward_ways


def check_activations(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC501 where a stage's inputs are not the outputs of the stage before.

    The same holds for blocks between which nothing happens.
    """
    stages = [Part(stage.index, stage) for stage in manifest.stages]
    of_blocks = (pair for pair in links(manifest) if any(part.block for part in pair))
    for one, other in (*itertools.pairwise(stages), *of_blocks):
        before, after = one.record, other.record
        taken = [item.tensor for item in after.arguments]
        if list(map(_boundary, before.outputs)) != list(map(_boundary, taken)):
            yield Finding(
                code="PPC501",
                message=f"{other.title} does not take what {one.title} returns",
                where=other.at(field="arguments"),
                expected=listed(map(tensors.text, before.outputs)),
                found=listed(map(tensors.text, taken)),
                hint="the model changes shape or type between these layers, which a pipeline "
                "cannot: build again with another split",
            )


def check_gradients(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC502 where a stage's gradients are not what the stage before takes.

    The gradient for output ``k`` of a stage is that of argument ``k`` of the next one. Whole or in
    two parts, each way of the one's backward must fit each way of the other's. That both are like
    the output and the argument themselves is for ``conventions`` to check.
    """
    for one, other in links(manifest):
        before, after = one.record, other.record
        wanted = {i.name: i.tensor for i in after.arguments if i.tensor.requires_grad}
        takers = [tangents(before, way) for way in backward_ways(before)] or [{}]
        for way in backward_ways(after) or (("backward",),):
            given = _argument_gradients(after, way)
            for name in sorted(set(wanted) - set(given)):
                yield _unlike(other, way[0], name, tensors.text(wanted[name]), "no gradient")
            for taken in takers:
                for name, (expected, found) in tensors.differing(taken, given).items():
                    if name in taken or name not in wanted:
                        yield _unlike(other, way[0], name, expected, found)


def _boundary(tensor: TensorSpec) -> tuple[object, ...]:
    return tensor.shape, tensor.stride, tensor.dtype, tensor.device, tensor.layout


def tangents(stage: Unit, way: Iterable[Role]) -> dict[str, TensorSpec | None]:
    """Return the gradients of its outputs that the programs of a backward take between them."""
    return {
        name: tensor
        for role in way
        if role in stage.programs
        for name, tensor in tensors.by_name(stage.programs[role], "tangent").items()
    }


def _argument_gradients(stage: Unit, way: Iterable[Role]) -> dict[str, TensorSpec | None]:
    return {
        name: tensor
        for role in way
        if role in stage.programs
        for name, tensor in tensors.by_name(
            stage.programs[role], "argument_gradient", outputs=True
        ).items()
    }


def _unlike(part: Part, role: str, name: str, expected: str, found: str) -> Finding:
    return Finding(
        code="PPC502",
        message=f"the gradient {name} at a boundary of {part.title} is not what is taken",
        where=part.at(role, f"gradient {name}"),
        expected=expected,
        found=found,
    )
