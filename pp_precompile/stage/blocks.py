"""Trace the blocks of a stage, each distinct one once.

A block is a module that runs programs of its own inside a stage whose other modules run eagerly.
It is traced over plain tensors: whole parameters in the dtype that is computed in.
"""

import contextlib
import dataclasses
import enum
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import torch
from torch import nn

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.factors import flatten
from pp_precompile.stage.describe import describe
from pp_precompile.stage.programs import StageSource, TracedStage, trace_stage


class BlockTracer:
    """Traces blocks, and recognizes those that are like one that it has traced."""

    def __init__(
        self, device: torch.device, compiler: Mapping[str, str], *, unread: Iterable[str] = ()
    ) -> None:
        """Trace for ``device`` under the ``compiler`` factors (:func:`programs.trace_stage`).

        ``unread`` names attributes of modules, and fields of what they hold, that no ``forward``
        reads: blocks that differ in these alone are equal.
        """
        self._device = device
        self._compiler = compiler
        self._unread = frozenset(unread)
        self._known: dict[Digest, TracedStage] = {}

    def trace(self, source: StageSource) -> TracedStage:
        """Trace a block, described as a stage of one module.

        Its ``forward`` takes the arguments by position and the keywords by name; other parameters
        without a default value are None.

        Raises:
            CompileError: PPC301 if it cannot be traced, PPC304 if it is not portable.
        """
        structure = _structure(source, self._unread)
        known = self._known.get(structure) if structure is not None else None
        if known is not None:
            return dataclasses.replace(known, source=source)
        with _called_by_name(source.module):
            traced = trace_stage(source, device=self._device, meshes=(), compiler=self._compiler)
        if structure is not None:
            self._known[structure] = traced
        return traced


@contextlib.contextmanager
def _called_by_name(module: nn.Module) -> Iterator[None]:
    """Let callers leave out what a block's ``forward`` asks for and gets None for."""
    forward = module.forward
    own = "forward" in vars(module)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = [p for p in inspect.signature(forward).parameters.values() if p.kind in named]

    @functools.wraps(forward)
    def filled(*args: Any, **kwargs: Any) -> Any:
        left = {p.name: None for p in parameters[len(args) :] if p.default is p.empty}
        return forward(*args, **(left | kwargs))

    module.forward = filled
    try:
        yield
    finally:
        if own:
            module.forward = forward
        else:
            del module.forward


def _structure(source: StageSource, unread: Set[str]) -> Digest | None:
    """Return a digest of all that tracing a block can depend on; None if that cannot be told.

    Everything that a module keeps as an attribute counts, except the values of its tensors and
    what is ``unread``.
    """
    try:
        described = [_module(n, module, unread) for n, module in source.module.named_modules()]
    except (PrecompileError, _UnknownError):
        return None
    calls = [
        [(item.name, str(item.tensor), str(item.tensor.stride)) for item in items]
        for items in (source.arguments, source.keywords)
    ]
    kinds = sorted(source.backward_kinds)
    return digest_bytes(encode([described, calls, kinds]))


class _UnknownError(Exception):
    """A module's behaviour cannot be told from its attributes."""


def _module(name: str, module: nn.Module, unread: Set[str]) -> list[Any]:
    if module._forward_hooks or module._forward_pre_hooks:
        raise _UnknownError
    tensors = {
        **{f"parameter {n}": p for n, p in module._parameters.items()},
        **{f"buffer {n}": b for n, b in module._buffers.items()},
    }
    specs = {n: None if t is None else repr(describe(t)) for n, t in tensors.items()}
    leaves: dict[str, str] = {}
    for attribute, value in vars(module).items():
        if attribute not in _OF_TORCH:
            plain = _plain(value, ())
            leaves |= flatten(plain, attribute, excluded=lambda p: p.rpartition(".")[2] in unread)
    kind = type(module)
    return [name, f"{kind.__module__}:{kind.__qualname__}", module.training, specs, leaves]


def _plain(value: Any, within: tuple[int, ...]) -> Any:
    """Return ``value`` with objects as their class and attributes, and torch's own enums as text.

    ``within`` are the identities of the objects around it; an object inside itself is not told.
    """
    kind = type(value)
    if id(value) in within:
        raise _UnknownError
    if hasattr(kind, "__members__") and not isinstance(value, enum.Enum):
        return f"{kind.__qualname__} {value}"
    around = (*within, id(value))
    if kind in (list, tuple):
        return [_plain(item, around) for item in value]
    if kind is dict:
        return {key: _plain(item, around) for key, item in value.items()}
    told = isinstance(value, type | enum.Enum | torch.Tensor | nn.Module)
    if told or dataclasses.is_dataclass(value) or callable(value) or not hasattr(value, "__dict__"):
        return value
    return {"class": kind} | {name: _plain(item, around) for name, item in vars(value).items()}


_OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has: its tensors, children and hooks, which are looked at apart."""
