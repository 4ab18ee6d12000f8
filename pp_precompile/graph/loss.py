"""The loss takes what the last stage returns, and gives the gradient that its backward takes."""

from collections.abc import Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.graph import tensors
from pp_precompile.graph.edges import tangents
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.roles import backward_ways

_PREDICTION = "0"
"""The loss is called with the prediction first."""


_FACTORS = "inputs.loss."


def has_loss(manifest: Manifest) -> bool:
    """Tell whether the job's loss is a program: its key names the loss, and what it is called with.

    Elsewhere the loss is the caller's, and the schedule calls it, or the last stage's forward
    computes it.
    """
    if manifest.stages[-1].returns_loss:
        return False
    return any(name == "loss" or name.startswith(_FACTORS) for name in manifest.factors)


def check_loss(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC504 where the loss and the last stage do not fit, or another stage has a loss.

    A forward that returns gradients is a whole step, in a pipeline of one stage: it computes the
    loss too, and there is nothing left for a backward.
    """
    *others, last = manifest.stages
    yield from _whole_step(manifest)
    for stage in others:
        if "loss" in stage.programs or stage.returns_loss:
            yield _finding(stage.index, "program", f"in stage {last.index} only", "here")
    yield from _of_forward(last)
    loss = last.programs.get("loss")
    if loss is None:
        return
    arguments = tensors.by_name(loss, "argument")
    positions = {str(position) for position in range(len(arguments))}
    if set(arguments) != positions:
        yield _finding(last.index, "arguments", listed(sorted(positions)), listed(arguments))
    prediction = arguments.get(_PREDICTION)
    for name, tensor in arguments.items():
        if prediction and tensor and tensor.device != prediction.device:
            yield _finding(last.index, f"argument {name}", prediction.device, tensor.device)
    if len(last.outputs) != 1 or not tensors.same(prediction, last.outputs[0]):
        yield _finding(
            last.index,
            "argument 0",
            listed(map(tensors.text, last.outputs)),
            tensors.text(prediction),
        )
    gradient = tensors.by_name(loss, "argument_gradient", outputs=True)
    for way in backward_ways(last):
        for name, (expected, found) in tensors.differing(tangents(last, way), gradient).items():
            yield _finding(last.index, f"gradient {name}", expected, found)
    values = tensors.by_name(loss, "output", outputs=True)
    if list(values) != ["0"] or not _is_scalar(values["0"]):
        yield _finding(
            last.index, "output", "one scalar", listed(map(tensors.text, values.values()))
        )


def _whole_step(manifest: Manifest) -> Iterator[Finding]:
    for stage in manifest.stages:
        if not stage.returns_gradients:
            continue
        if len(manifest.stages) > 1:
            found = f"{len(manifest.stages)} stages"
            yield _finding(stage.index, "gradients of forward", "a pipeline of one stage", found)
        if not stage.returns_loss:
            yield _finding(stage.index, "gradients of forward", "a forward with the loss", "none")
        for way in backward_ways(stage):
            yield _finding(stage.index, "gradients of forward", "no backward", listed(way))


def _of_forward(last: StageRecord) -> Iterator[Finding]:
    """A forward that computes the loss returns it, the only one, and is given no gradient."""
    if not last.returns_loss:
        return
    if len(last.outputs) != 1 or not _is_scalar(last.outputs[0]):
        texts = listed(map(tensors.text, last.outputs))
        yield _finding(last.index, "output", "one scalar", texts)
    if "loss" in last.programs:
        yield _finding(last.index, "program", "one loss", "one in forward, and a program")
    for way in backward_ways(last):
        for name, tensor in tangents(last, way).items():
            yield _finding(last.index, f"gradient {name}", "no such value", tensors.text(tensor))


def _is_scalar(tensor: TensorSpec | None) -> bool:
    return tensor is not None and tensor.shape == ()


def _finding(stage: int, field: str, expected: str, found: str) -> Finding:
    return Finding(
        code="PPC504",
        message="the loss does not fit the last stage",
        where=Where(stage=stage, program="loss", field=field),
        expected=expected,
        found=found,
        hint="build again with the job's loss",
    )
