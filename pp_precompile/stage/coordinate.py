"""This rank's coordinate along a mesh dimension, as an input of a traced program.

Models that shard a vocabulary compute with the rank itself: torchtitan's embedding and its
vocabulary-parallel loss ask ``torch.distributed.get_rank`` for it. Traced as it is, the number of
the rank that builds would become a constant of every rank's program. While tracing, ranks within a
group are therefore answered with a :class:`Coordinate`, which turns into an input where it meets
tensors.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pp_precompile.contract.errors import CompileError
from pp_precompile.stage.portable import PREFIX

_BUFFER = "_pp_precompile_coordinate_"


class Coordinate:
    """``scale * coordinate + offset``, known only at run time, along a dimension of ``size`` ranks.

    Sums with and products by integers stay such an expression. A comparison has an answer only
    where it is the same for all ranks, apart from ranks at which both sides are equal: there
    ``min`` and ``max``, which is what it is for, give the same either way.
    """

    def __init__(
        self, tensor: Callable[[], torch.Tensor], size: int, scale: int = 1, offset: int = 0
    ) -> None:
        """``tensor`` returns the coordinate as a 0-d int64 tensor of the program being traced."""
        self._tensor = tensor
        self._size = size
        self._scale = scale
        self._offset = offset

    def _with(self, scale: int, offset: int) -> "Coordinate":
        return Coordinate(self._tensor, self._size, scale, offset)

    def __mul__(self, other: int) -> "Coordinate":
        """Return the product with an integer."""
        return self._with(self._scale * _integer(other), self._offset * other)

    def __add__(self, other: int) -> "Coordinate":
        """Return the sum with an integer."""
        return self._with(self._scale, self._offset + _integer(other))

    def __sub__(self, other: Any) -> Any:
        """Return the difference: an integer for two expressions that move alike."""
        if isinstance(other, Coordinate):
            if other._scale != self._scale:
                raise _unknown("a difference of expressions that move unlike")
            return self._offset - other._offset
        return self + -_integer(other)

    __rmul__ = __mul__
    __radd__ = __add__

    def __lt__(self, other: int) -> bool:
        """Tell whether all ranks are below (or at) ``other``; see the class."""
        ends = (self._offset, self._offset + self._scale * (self._size - 1))
        if max(ends) <= _integer(other):
            return True
        if min(ends) >= other:
            return False
        raise _unknown(f"a comparison with {other} that is not the same for all ranks")

    def __gt__(self, other: int) -> bool:
        """Tell whether all ranks are above ``other``; see the class."""
        return not self < other

    def __bool__(self) -> bool:
        """Refuse: a program has one control flow for all ranks."""
        raise _unknown("a branch")

    __int__ = __index__ = __float__ = __bool__
    # Equality is a branch as well, and what is compared like this is no key of a dictionary.
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Refuse: see :meth:`__bool__`."""
        raise _unknown("a branch")

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Let torch compute with the expression's value."""

        def value(item: Any) -> Any:
            return item._value() if isinstance(item, Coordinate) else item

        args, kwargs = torch.utils._pytree.tree_map(value, (args, kwargs or {}))
        return function(*args, **kwargs)

    def _value(self) -> torch.Tensor:
        return self._tensor() * self._scale + self._offset


@contextlib.contextmanager
def coordinates_as_inputs(
    module: nn.Module, groups: Mapping[str, str], device: torch.device
) -> Iterator[None]:
    """Answer questions for a rank within one of ``groups`` with an input of the traced program.

    The inputs are buffers of ``module`` for the time being, see :func:`coordinate_group`.

    Args:
        module: what is traced; must be in a fake mode.
        groups: this rank's process-group names with their logical names.
        device: where the program will run.
    """
    original = dist.get_rank

    def get_rank(group: Any = None) -> Any:
        name = getattr(group, "group_name", "")
        if name not in groups or group.size() == 1:
            return original(group)
        buffer = _buffer(groups[name])
        return Coordinate(lambda: getattr(module, buffer), group.size())

    added = [_buffer(logical) for logical in groups.values()]
    for buffer in added:
        zero = torch.zeros((), dtype=torch.int64, device=device)
        module.register_buffer(buffer, zero, persistent=False)
    dist.get_rank = get_rank
    try:
        yield
    finally:
        dist.get_rank = original
        for buffer in added:
            module._buffers.pop(buffer, None)
            module._non_persistent_buffers_set.discard(buffer)


def coordinate_buffers(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the coordinates among the buffers of ``module``, by buffer name."""
    return {
        name: buffer
        for name, buffer in module.named_buffers(recurse=False)
        if coordinate_group(name) is not None
    }


def coordinate_group(buffer: str) -> str | None:
    """Return the mesh dimension whose coordinate ``buffer`` stands for; None for other buffers."""
    return buffer.removeprefix(_BUFFER) if buffer.startswith(_BUFFER) else None


def _buffer(logical: str) -> str:
    """Return the buffer that stands for the coordinate within a logical group."""
    return _BUFFER + logical.removeprefix(PREFIX)


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise _unknown(f"arithmetic with a {type(value).__name__}")
    return value


def _unknown(what: str) -> CompileError:
    return CompileError(
        "PPC304",
        "the traced program depends on the rank that traces it",
        expected="a rank that is multiplied, shifted and compared with tensors",
        found=what,
        hint="let the model compute with tensors where ranks differ, not with Python numbers",
    )
