"""From live or fake tensors to the contract's descriptions of them."""

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.tensor import Layout, NamedTensor, TensorSpec


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the local part of a DTensor without autograd, or the tensor itself."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def describe(tensor: torch.Tensor, *, device: str | None = None) -> TensorSpec:
    """Describe ``tensor``; ``device`` overrides the device type (for tensors still on meta)."""
    local = local_tensor(tensor)
    return TensorSpec(
        shape=tuple(map(_static, local.shape)),
        stride=tuple(map(_static, local.stride())),
        dtype=str(local.dtype).removeprefix("torch."),
        device=device or local.device.type,
        requires_grad=tensor.requires_grad,
        layout=layout_of(tensor) if isinstance(tensor, DTensor) else None,
        dynamic=tuple(i for i, size in enumerate(local.shape) if _is_dynamic(size)),
    )


def _is_dynamic(size: int | torch.SymInt) -> bool:
    return isinstance(size, torch.SymInt) and not size.node.expr.is_number


def _static(size: int | torch.SymInt) -> int:
    return 0 if _is_dynamic(size) else int(size)


def describe_state(
    module: nn.Module, *, device: str | None = None
) -> tuple[tuple[NamedTensor, ...], tuple[NamedTensor, ...]]:
    """Describe all parameters and all buffers of ``module``, sorted by FQN."""

    def named(items: dict[str, torch.Tensor]) -> tuple[NamedTensor, ...]:
        return tuple(
            NamedTensor(name=name, tensor=describe(items[name], device=device))
            for name in sorted(items)
        )

    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    return named(dict(parameters)), named(buffers)


def layout_of(tensor: DTensor) -> Layout:
    """Describe how a distributed tensor lies on its mesh.

    Raises:
        PrecompileError: PPC304 if the mesh has no dimension names.
    """
    names = tensor.device_mesh.mesh_dim_names
    if names is None:
        raise PrecompileError(
            "PPC304",
            "a parameter lies on a device mesh without dimension names",
            expected="named mesh dimensions, such as torchtitan's",
            found=repr(tensor.device_mesh),
            hint="give the mesh dimension names",
        )
    return Layout(
        mesh=tuple(names),
        placements=tuple(_placement(p) for p in tensor.placements),
        shape=tuple(int(n) for n in tensor.shape),
    )


def _placement(placement: Placement) -> str:
    if type(placement) is Replicate:
        return "replicate"
    if type(placement) is Shard:
        return f"shard({placement.dim})"
    if type(placement) is Partial:
        return f"partial({placement.reduce_op})"
    if isinstance(placement, _StridedShard):
        return f"strided_shard({placement.dim}, {placement.split_factor})"
    return str(placement)
