"""Lend a module fake parameters and buffers, so that it can be traced without real weights.

The module itself is traced, not a copy: torchtitan wraps the ``forward`` of submodules in
closures, and a deep copy would call the originals.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.stage.describe import local_tensor


@contextlib.contextmanager
def fake_state(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Swap every parameter and buffer for a fake one on ``device`` (must run in a fake mode).

    Shapes, dtypes, placements, ``requires_grad`` and sharing between modules stay the same.
    """
    fakes: dict[int, Any] = {}
    saved: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for child in module.modules():
            for tensors in (child._parameters, child._buffers):
                for name, tensor in tensors.items():
                    if tensor is None:
                        continue
                    if id(tensor) not in fakes:
                        fakes[id(tensor)] = _fake(tensor, device)
                    saved.append((tensors, name, tensor))
                    tensors[name] = fakes[id(tensor)]
        yield
    finally:
        for tensors, name, tensor in reversed(saved):
            tensors[name] = tensor


def example(spec: TensorSpec, device: torch.device) -> torch.Tensor:
    """Return a tensor as ``spec`` describes it (a fake one in a fake mode)."""
    dtype = getattr(torch, spec.dtype)
    tensor = torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device=device)
    return tensor.requires_grad_(spec.requires_grad)


def _fake(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    local = local_tensor(tensor)
    fake: torch.Tensor = torch.empty_strided(
        local.shape, local.stride(), dtype=local.dtype, device=device
    )
    if isinstance(tensor, DTensor):
        fake = DTensor(fake, tensor._spec, requires_grad=False)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(fake, requires_grad=tensor.requires_grad)
    return fake.requires_grad_(tensor.requires_grad)
