"""When two descriptions of a tensor are of one tensor that a compiled program can be given."""

from pp_precompile.contract.program import Kind, ProgramRecord
from pp_precompile.contract.tensor import TensorSpec


def same(one: TensorSpec | None, other: TensorSpec | None) -> bool:
    """Compare what programs rely on; ``requires_grad`` and the layout belong to live tensors."""
    return _memory(one) == _memory(other)


def _memory(tensor: TensorSpec | None) -> object:
    return tensor and (
        tensor.shape,
        tensor.stride,
        tensor.dtype,
        tensor.device,
        tensor.dynamic,
    )


def text(tensor: TensorSpec | None) -> str:
    """Describe everything that is compared, strides and device included."""
    if tensor is None:
        return "an integer"
    return f"{tensor} stride {list(tensor.stride)} on {tensor.device}"


def by_name(
    program: ProgramRecord, kind: Kind, *, outputs: bool = False
) -> dict[str, TensorSpec | None]:
    """Return the inputs (or outputs) of one kind by name."""
    values = program.outputs if outputs else program.inputs
    return {value.name: value.tensor for value in values if value.kind == kind}


def differing(
    ours: dict[str, TensorSpec | None], theirs: dict[str, TensorSpec | None]
) -> dict[str, tuple[str, str]]:
    """Return, by name, the texts of every value that the two do not describe alike."""
    return {
        name: (named_text(ours, name), named_text(theirs, name))
        for name in sorted(ours.keys() | theirs.keys())
        if name not in ours or name not in theirs or not same(ours[name], theirs[name])
    }


def named_text(values: dict[str, TensorSpec | None], name: str) -> str:
    """Describe the value called ``name``, or say that there is none."""
    return text(values[name]) if name in values else "no such value"
