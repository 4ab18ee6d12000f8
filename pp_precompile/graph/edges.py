"""What a stage returns is what the next one takes, forward and backward."""

from collections.abc import Iterable, Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import Role
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.graph import tensors
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.roles import backward_ways


def check_activations(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC501 where a stage's inputs are not the outputs of the stage before."""
    for before, after in zip(manifest.stages, manifest.stages[1:], strict=False):
        taken = [item.tensor for item in after.arguments]
        if list(map(_boundary, before.outputs)) != list(map(_boundary, taken)):
            yield Finding(
                code="PPC501",
                message=f"stage {after.index} does not take what stage {before.index} returns",
                where=Where(stage=after.index, field="arguments"),
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
    for before, after in zip(manifest.stages, manifest.stages[1:], strict=False):
        wanted = {i.name: i.tensor for i in after.arguments if i.tensor.requires_grad}
        takers = [tangents(before, way) for way in backward_ways(before)] or [{}]
        for way in backward_ways(after) or (("backward",),):
            given = _argument_gradients(after, way)
            for name in sorted(set(wanted) - set(given)):
                yield _unlike(after, way[0], name, tensors.text(wanted[name]), "no gradient")
            for taken in takers:
                for name, (expected, found) in tensors.differing(taken, given).items():
                    if name in taken or name not in wanted:
                        yield _unlike(after, way[0], name, expected, found)


def _boundary(tensor: TensorSpec) -> tuple[object, ...]:
    return tensor.shape, tensor.stride, tensor.dtype, tensor.device, tensor.layout


def tangents(stage: StageRecord, way: Iterable[Role]) -> dict[str, TensorSpec | None]:
    """Return the gradients of its outputs that the programs of a backward take between them."""
    return {
        name: tensor
        for role in way
        if role in stage.programs
        for name, tensor in tensors.by_name(stage.programs[role], "tangent").items()
    }


def _argument_gradients(stage: StageRecord, way: Iterable[Role]) -> dict[str, TensorSpec | None]:
    return {
        name: tensor
        for role in way
        if role in stage.programs
        for name, tensor in tensors.by_name(
            stage.programs[role], "argument_gradient", outputs=True
        ).items()
    }


def _unlike(stage: StageRecord, role: str, name: str, expected: str, found: str) -> Finding:
    return Finding(
        code="PPC502",
        message=f"the gradient {name} at a boundary of stage {stage.index} is not what is taken",
        where=Where(stage=stage.index, program=role, field=f"gradient {name}"),
        expected=expected,
        found=found,
    )
