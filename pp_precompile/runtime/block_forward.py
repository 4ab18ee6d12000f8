"""A block's stored programs behind the call of an ordinary module.

The block stays what it was for everyone else: FSDP2 gathers its parameters before the call, frees
them after it, and reduces their gradients after the backward. What runs in place of its
``forward`` reads the parameters that the module has at that moment, and gives their gradients to
autograd, as eager code would.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor

from pp_precompile.contract.errors import LoadError, StaleBuildError
from pp_precompile.contract.program import Value
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.graph.parts import Part
from pp_precompile.runtime.loader import LoadedBlock
from pp_precompile.runtime.private_autograd import let_go_of_saved
from pp_precompile.runtime.strides import strided
from pp_precompile.stage.describe import describe

Tensors = Sequence[torch.Tensor]
Getter = Callable[[Tensors], torch.Tensor]
"""Returns one input of a program from the arguments, keywords and parameters of a call."""


def install_block(module: nn.Module, block: LoadedBlock) -> "BlockForward":
    """Make ``module`` run ``block``'s programs from now on; returns what was installed.

    Its parameters may be on meta, and sharded later on: each call looks them up.
    """
    forward = BlockForward(module, block)
    module.forward = forward
    return forward


class BlockForward:
    """What runs in place of a block's ``forward``."""

    def __init__(self, module: nn.Module, block: LoadedBlock) -> None:
        """Take a module whose ``forward`` is still its own, and its loaded programs.

        Raises:
            LoadError: PPC305 for a program with an input that a block has not.
        """
        record = block.record
        self._part = Part(block.stage, record)
        self._accepted = tuple(inspect.signature(module.forward).parameters)
        self._arguments = record.arguments
        self._keywords = {item.name: item for item in record.keywords}
        self._parameters = [_Place(module, item, "_parameters") for item in record.parameters]
        self._buffers = {item.name: _Place(module, item, "_buffers") for item in record.buffers}
        self._forward = block.programs["forward"]
        self._backward = block.programs.get("backward")
        self._outputs = record.outputs
        self._names = [
            *(("argument", item.name) for item in record.arguments),
            *(("keyword", item.name) for item in record.keywords),
            *(("parameter", item.name) for item in record.parameters),
        ]
        values = record.programs["forward"]
        self._getters = [self._getter(value) for value in values.inputs]
        self._results = values.outputs
        backward = record.programs.get("backward")
        self._taken = [(v.kind, v.name) for v in backward.inputs] if backward else []
        self._given = [_of(v) for v in backward.outputs] if backward else []
        self._checked = False

    def _getter(self, value: Value) -> Getter:
        if value.kind == "buffer":
            place = self._buffers[value.name]
            return lambda _: place.tensor
        key = (value.kind, value.name)
        if key not in self._names:
            raise LoadError(
                "PPC305",
                f"a program of {self._part.title} has an input that a block cannot give it",
                where=self._part.at("forward", f"{value.kind} {value.name}"),
                expected="parameters, buffers, arguments and keywords",
                found=value.kind,
                hint="build again",
            )
        position = self._names.index(key)
        return lambda tensors: tensors[position]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the block on one microbatch, as its module would.

        Raises:
            StaleBuildError: PPC104 if the inputs are not those that the block was compiled for,
                PPC103 if the parameters are not.
        """
        inputs = self._inputs(args, kwargs)
        parameters = [place.tensor for place in self._parameters]
        if not self._checked:
            self._check()
        if torch.is_grad_enabled() and self._backward is not None:
            outputs = _BlockFunction.apply(self, *inputs, *parameters)
        else:
            outputs, _ = self._run([*inputs, *parameters])
        return outputs[0] if len(outputs) == 1 else outputs

    def _inputs(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Return arguments and keywords in order; what is None counts as absent."""
        count = len(self._arguments)
        named = dict(zip(self._accepted[count:], args[count:], strict=False)) | kwargs
        present = {name: value for name, value in named.items() if value is not None}
        if len(args) < count or present.keys() != self._keywords.keys():
            raise StaleBuildError(
                "PPC104",
                "the block is called with another set of inputs than it was compiled for",
                where=self._part.at(field="inputs"),
                expected=f"{count} positional and {sorted(self._keywords)}",
                found=f"{min(len(args), count)} positional and {sorted(present)}",
                hint="inputs that a block was compiled without cannot appear later: build again",
            )
        pairs = [*zip(self._arguments, args[:count], strict=True)]
        pairs += [(item, present[name]) for name, item in self._keywords.items()]
        return [self._fitting(item, value) for item, value in pairs]

    def _fitting(self, item: NamedTensor, value: torch.Tensor) -> torch.Tensor:
        spec = item.tensor
        if tuple(value.shape) != spec.shape or str(value.dtype) != f"torch.{spec.dtype}":
            raise StaleBuildError(
                "PPC104",
                f"input {item.name} is not what the block was compiled for",
                where=self._part.at(field=item.name),
                expected=spec,
                found=describe(value),
                hint="batch and sequence sizes are part of a build: build for this shape",
            )
        return value if value.stride() == spec.stride else strided(value, spec)

    def _check(self) -> None:
        """Compare the parameters and buffers that the module has now with the record, once."""
        for place in (*self._parameters, *self._buffers.values()):
            live = place.tensor
            spec = place.item.tensor
            sharded = isinstance(live, DTensor)
            found = describe(live)
            if sharded or _memory(found) != _memory(spec):
                raise StaleBuildError(
                    "PPC103",
                    f"{place.item.name} is not what the block was compiled for when it runs",
                    where=self._part.at(field=place.item.name),
                    expected=f"a plain {spec}",
                    found=f"a sharded {found}" if sharded else found,
                    hint="blocks run inside FSDP2's hooks, which gather what they shard: call the "
                    "module, not its forward, and build again if the model was changed",
                )
        self._checked = True

    def _run(
        self, tensors: Tensors
    ) -> tuple[tuple[torch.Tensor, ...], list[tuple[str, torch.Tensor]]]:
        """Run the forward program; returns the outputs, and the saved values by name."""
        detached = [tensor.detach() for tensor in tensors]
        outputs, saved = [], []
        with torch.no_grad():
            results = self._forward([get(detached) for get in self._getters])
            for value, result in zip(self._results, results, strict=True):
                if value.kind == "output":
                    outputs.append(result)
                elif value.kind == "saved":
                    saved.append((value.name, result))
                else:
                    self._buffers[value.name].tensor.copy_(result)
        return tuple(outputs), saved

    def _run_backward(
        self, saved: dict[str, torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> Iterator[torch.Tensor | None]:
        """Run the backward program; yields a gradient, or None, for each input of a call."""
        values = {("saved", name): value for name, value in saved.items()}
        saved.clear()
        for position, (tangent, spec) in enumerate(zip(tangents, self._outputs, strict=True)):
            values["tangent", str(position)] = _tangent(tangent, spec)
        inputs = [values[key] for key in self._taken]
        values.clear()
        assert self._backward is not None
        with torch.no_grad():
            gradients = dict(zip(self._given, self._backward(inputs), strict=True))
        return (gradients.get(name) for name in self._names)


class _Place:
    """Where a module keeps a tensor: whoever replaces it there is noticed."""

    def __init__(self, module: nn.Module, item: NamedTensor, kind: str) -> None:
        owner, _, self._name = item.name.rpartition(".")
        self._owner = module.get_submodule(owner)
        self._kind = kind
        self.item = item

    @property
    def tensor(self) -> torch.Tensor:
        tensors: dict[str, torch.Tensor] = getattr(self._owner, self._kind)
        return tensors[self._name]


class _BlockFunction(torch.autograd.Function):
    """Connects a block's programs to autograd.

    Saved values are kept by autograd, so that whoever watches over it (checkpointing, offloading)
    sees them. Integers are not tensors, and stay here.
    """

    @staticmethod
    def forward(ctx: Any, block: BlockForward, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs, saved = block._run(tensors)
        ctx.block = block
        ctx.names = [name for name, value in saved if isinstance(value, torch.Tensor)]
        ctx.integers = {name: v for name, v in saved if not isinstance(v, torch.Tensor)}
        ctx.save_for_backward(*(v for _, v in saved if isinstance(v, torch.Tensor)))
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        saved = dict(zip(ctx.names, ctx.saved_tensors, strict=True)) | ctx.integers
        let_go_of_saved(ctx)
        return (None, *ctx.block._run_backward(saved, tangents))


def _of(value: Value) -> tuple[str, str]:
    """Return what a gradient is one of."""
    return value.kind.removesuffix("_gradient"), value.name


def _memory(spec: TensorSpec) -> tuple[object, ...]:
    return spec.shape, spec.stride, spec.dtype, spec.device, spec.requires_grad


def _tangent(tangent: torch.Tensor | None, spec: TensorSpec) -> torch.Tensor:
    """Return the gradient of an output in the layout that the programs were compiled for."""
    if tangent is None:
        return torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=spec.device)
    return strided(tangent, spec)
