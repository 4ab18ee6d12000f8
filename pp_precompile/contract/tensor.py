"""The description of one tensor: everything about it that a compiled program relies on."""

import re
from math import prod
from typing import Annotated

import msgspec

from pp_precompile.contract.integers import Natural
from pp_precompile.contract.limits import AtMostMeshDims, AtMostTensorDims, Name

ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "complex64": 8,
    "int64": 8,
    "float64": 8,
    "complex128": 16,
}
"""Bytes of one element by dtype name (torch's names without ``torch.``)."""


_Dims = Annotated[tuple[Natural, ...], AtMostTensorDims]

_PLACEMENT = re.compile(
    r"replicate|shard\((\d{1,3})\)|partial\(\w+\)|strided_shard\((\d{1,3}), \d{1,9}\)"
)


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a distributed tensor lies on the mesh.

    ``mesh`` names the mesh dimensions, outermost first; ``placements`` has one entry for each:
    ``replicate``, ``shard(D)``, ``strided_shard(D, N)`` or ``partial(OP)``; ``shape`` is the global
    shape. A strided shard is cut after the inner mesh dimensions have cut.
    """

    mesh: Annotated[tuple[Name, ...], AtMostMeshDims]
    placements: Annotated[tuple[Name, ...], AtMostMeshDims]
    shape: _Dims

    def cuts(self) -> list[tuple[str, int]]:
        """Return, in the order in which they cut, mesh dimensions with the dimension they cut.

        Raises:
            ValueError: naming a placement that is none of the four.
        """
        strided: list[tuple[str, int]] = []
        plain: list[tuple[str, int]] = []
        for name, placement in zip(self.mesh, self.placements, strict=True):
            match = _PLACEMENT.fullmatch(placement)
            if match is None:
                raise ValueError(placement)
            if match[1] is not None:
                plain.append((name, int(match[1])))
            elif match[2] is not None:
                strided.append((name, int(match[2])))
        return plain + strided

    def __str__(self) -> str:
        return ", ".join(f"{m}={p}" for m, p in zip(self.mesh, self.placements, strict=True))


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tensor as a program sees it: local shape and stride in elements, dtype, device type.

    ``dynamic`` lists the dimensions whose size depends on data, in ascending order: expert
    parallelism sends as many tokens as the router chooses. Their size, and strides that depend on
    it, are written as 0.
    """

    shape: _Dims
    stride: _Dims
    dtype: Name
    device: Name
    requires_grad: bool = False
    layout: Layout | None = None
    dynamic: _Dims = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (local ones of a distributed tensor); 0 if a size is dynamic."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        sizes = ("?" if i in self.dynamic else str(n) for i, n in enumerate(self.shape))
        text = f"{self.dtype}[{', '.join(sizes)}]"
        return f"{text} ({self.layout})" if self.layout else text


class NamedTensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tensor with the name that it is bound by: an FQN, an argument's position or keyword."""

    name: Name
    tensor: TensorSpec
