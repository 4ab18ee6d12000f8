"""Stages that draw random numbers."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pp_precompile.contract.errors import CompileError
from pp_precompile.runtime.loader import load_stage
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.runtime.stage_forward import install
from pp_precompile.stage.programs import compile_stages, trace_stage
from tests.modules import CPU, source


class Dropping(nn.Module):
    """A parameter times the input, half of it dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x * self.weight, 0.5)


def test_backward_drops_what_forward_dropped() -> None:
    module, x = Dropping(), torch.ones(64, requires_grad=True)
    stage = trace_stage(source(module, x), device=CPU, meshes=[], compiler={})
    sink = MemorySink()
    record = stage.record(compile_stages([stage], sink))
    install(module, load_stage(record, sink.read)).bind(module)
    torch.manual_seed(1)
    first, second = module(x), module(x)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(module(x), first)
    first.sum().backward()
    assert module.weight.grad is not None
    assert 0 < first.count_nonzero() < 64
    assert torch.equal(module.weight.grad, first.detach())


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def test_random_numbers_under_tensor_parallelism_are_refused(mesh: DeviceMesh) -> None:
    x = torch.ones(64, requires_grad=True)
    with pytest.raises(CompileError) as raised:
        trace_stage(source(Dropping(), x), device=CPU, meshes=[mesh], compiler={})
    assert raised.value.code == "PPC304"
    assert "random" in str(raised.value)
