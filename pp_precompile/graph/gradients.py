"""Gradients for exactly the parameters that require one."""

from collections.abc import Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.finding import Finding


def check_parameter_gradients(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC507 for a parameter that lacks a gradient, or gets one that it must not have.

    One that no program reads is a warning: training leaves it as it is, with or without us.
    """
    for stage in manifest.stages:
        read = _names(stage, "parameter", outputs=False)
        given = _names(stage, "parameter_gradient", outputs=True)
        for item in stage.parameters:
            if item.tensor.requires_grad == (item.name in given):
                continue
            unused = item.tensor.requires_grad and item.name not in read
            yield Finding(
                code="PPC507",
                message=f"parameter {item.name} of stage {stage.index} "
                + ("is not used" if unused else "has no right gradient"),
                where=Where(stage=stage.index, field=item.name),
                expected="a gradient" if item.tensor.requires_grad else "no gradient",
                found="a gradient" if item.name in given else "no gradient",
                hint="remove it from the model, or freeze it" if unused else "build again",
                severity="warning" if unused else "error",
            )


def _names(stage: StageRecord, kind: str, *, outputs: bool) -> set[str]:
    return {
        value.name
        for program in stage.programs.values()
        for value in (program.outputs if outputs else program.inputs)
        if value.kind == kind
    }
