"""Tensors in the strides that a program was compiled for."""

import torch

from pp_precompile.contract.tensor import TensorSpec


def strided(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Return ``tensor`` itself if it has the strides of ``spec``, else a copy that has them."""
    if tensor.stride() == spec.stride:
        return tensor
    copy = torch.empty_strided(spec.shape, spec.stride, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)
