"""What a stage returns is what the next one takes, forward and backward."""

from pp_precompile.contract.errors import CompileError, Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import TensorSpec


def check_boundaries(manifest: Manifest) -> None:
    """Refuse a build whose neighbouring stages do not fit together.

    Raises:
        CompileError: PPC301 naming the two stages and both sides of the edge.
    """
    for before, after in zip(manifest.stages, manifest.stages[1:], strict=False):
        _check_edge(before, after)


def _check_edge(before: StageRecord, after: StageRecord) -> None:
    sent = [_shape(tensor) for tensor in before.outputs]
    taken = [_shape(item.tensor) for item in after.arguments]
    if sent != taken:
        raise CompileError(
            "PPC301",
            f"stage {after.index} does not take what stage {before.index} returns",
            where=Where(stage=after.index, field="arguments"),
            expected=", ".join(map(str, before.outputs)),
            found=", ".join(str(item.tensor) for item in after.arguments),
            hint="the model changes shape or dtype between its layers, which is not supported",
        )


def _shape(tensor: TensorSpec) -> tuple[object, ...]:
    return tensor.shape, tensor.stride, tensor.dtype, tensor.device, tensor.layout
