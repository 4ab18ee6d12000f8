"""What forward saves for a microbatch is what backward takes, by name."""

from collections.abc import Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramRecord
from pp_precompile.graph import tensors
from pp_precompile.graph.finding import Finding


def check_saved(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC503 for each value that only one of the two has, or that they describe unlike."""
    for stage in manifest.stages:
        backward = stage.programs.get("backward")
        if backward is None:
            continue
        forward = stage.programs["forward"]
        kept = tensors.by_name(forward, "saved", outputs=True)
        taken = tensors.by_name(backward, "saved")
        for name, (expected, found) in tensors.differing(kept, taken).items():
            yield _finding(stage.index, "backward", name, expected, found)
        for name, alias in _dangling(forward):
            yield _finding(stage.index, "forward", name, "an input that forward takes", alias)


def _dangling(forward: ProgramRecord) -> Iterator[tuple[str, str]]:
    inputs = {f"{value.kind}:{value.name}" for value in forward.inputs}
    for value in forward.outputs:
        if value.alias is not None and (value.kind != "saved" or value.alias not in inputs):
            yield value.name, value.alias


def _finding(stage: int, role: str, name: str, expected: str, found: str) -> Finding:
    return Finding(
        code="PPC503",
        message=f"forward and backward of stage {stage} disagree on saved value {name}",
        where=Where(stage=stage, program=role, field=f"saved {name}"),
        expected=expected,
        found=found,
    )
