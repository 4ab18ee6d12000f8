"""Local tensors at the boundary of a module that computes with distributed ones.

With tensor parallelism a decoder's layers take and return DTensors, whose layout is known in
advance. Programs and pipelines pass local tensors around, so what a module takes is wrapped on its
way in, and what it returns unwrapped on its way out, while it is traced; gradients get the layouts
of what they are gradients of. The layouts are part of the contract between stages.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from pp_precompile.contract.errors import CompileError
from pp_precompile.contract.tensor import Layout, NamedTensor, TensorSpec
from pp_precompile.stage.describe import layout_of

Meshes = Sequence[DeviceMesh]
"""One-dimensional meshes with names: those that stages communicate over."""


class LocalBoundary:
    """Lets a module take and return local tensors, and remembers the layouts of what it returns."""

    def __init__(self, module: nn.Module, arguments: Sequence[NamedTensor], meshes: Meshes) -> None:
        """``arguments`` describe the positional inputs in order, with layouts."""
        self._module = module
        self._layouts = [item.tensor.layout for item in arguments]
        self._meshes = meshes
        self._outputs: list[Layout | None] = []

    @contextlib.contextmanager
    def local(self) -> Iterator[None]:
        """Let calls of the module inside take and return local tensors."""
        forward = self._module.forward
        own = "forward" in vars(self._module)

        def local_forward(*args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
            wrapped = [
                distributed(a, x, self._meshes) for a, x in zip(args, self._layouts, strict=True)
            ]
            result = forward(*wrapped, **kwargs)
            outputs = result if isinstance(result, tuple) else (result,)
            self._outputs = [layout_of(o) if isinstance(o, DTensor) else None for o in outputs]
            unwrapped = tuple(_local(o) if isinstance(o, DTensor) else o for o in outputs)
            return unwrapped if isinstance(result, tuple) else unwrapped[0]

        self._module.forward = local_forward
        try:
            yield
        finally:
            if own:
                self._module.forward = forward
            else:
                del self._module.forward

    def with_layouts(self, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return the descriptions of local outputs with the layouts that they had."""
        return tuple(
            msgspec.structs.replace(spec, layout=layout)
            for spec, layout in zip(outputs, self._outputs, strict=True)
        )


def distributed(tensor: torch.Tensor, layout: Layout | None, meshes: Meshes) -> torch.Tensor:
    """Return local ``tensor`` as a DTensor that lies as ``layout`` says; itself without one.

    Differentiable; gradients get the same layout.

    Raises:
        CompileError: PPC304 for a layout that is not on one of ``meshes``.
    """
    if layout is None:
        return tensor
    mesh = next((m for m in meshes if tuple(m.mesh_dim_names or ()) == layout.mesh), None)
    if mesh is None:
        raise CompileError(
            "PPC304",
            "a tensor at the boundary of a stage lies on a mesh that stages do not have",
            expected=f"one of {[m.mesh_dim_names for m in meshes]}",
            found=str(layout),
            hint="report this model with its parallelism",
        )
    cut = dict(layout.cuts())
    placements = [
        _placement(text, cut.get(name))
        for name, text in zip(layout.mesh, layout.placements, strict=True)
    ]
    shape = torch.Size(layout.shape)
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(tensor, mesh, placements, run_check=False, shape=shape, stride=stride)


def _local(tensor: DTensor) -> torch.Tensor:
    local: torch.Tensor = tensor.to_local(grad_placements=tensor.placements)
    return local


def _placement(text: str, dim: int | None) -> Placement:
    if text == "replicate":
        return Replicate()
    if dim is not None and text == f"shard({dim})":
        return Shard(dim)
    raise CompileError(
        "PPC304",
        "a tensor at the boundary of a stage has a placement that cannot be passed on",
        expected="replicate or shard(D)",
        found=text,
        hint="reduce partial sums before the end of a stage",
    )
