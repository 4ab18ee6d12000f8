"""Stages that draw random numbers."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from pp_precompile.contract.errors import CompileError
from pp_precompile.runtime.loader import load_stage
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.runtime.stage_forward import install
from pp_precompile.stage.portable import register_logical_groups
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


class Sharded(nn.Module):
    """Drops half of a tensor that is whole on each rank, and half of one that is in pieces."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.weight = nn.Parameter(distribute_tensor(torch.ones(256, 8), mesh, [Shard(0)]))
        self.mesh = mesh

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)
        whole = torch.nn.functional.dropout(whole, 0.5)
        pieces = torch.nn.functional.dropout(whole @ self.weight.t(), 0.5)
        return torch.cat([whole.to_local(), pieces.to_local()], dim=1)


def test_ranks_drop_the_same_of_whole_tensors_and_other_elements_of_shards(
    mesh: DeviceMesh,
) -> None:
    register_logical_groups([mesh])
    x = torch.ones(4, 8, requires_grad=True)
    stage = trace_stage(source(Sharded(mesh), x), device=CPU, meshes=[mesh], compiler={})
    sink = MemorySink()
    record = stage.record(compile_stages([stage], sink))
    program = load_stage(record, sink.read).programs["forward"]
    values = {"parameter": torch.ones(128, 8), "argument": x.detach()}

    def run(coordinate: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(1)
        given = values | {"coordinate": torch.tensor(coordinate)}
        inputs = record.programs["forward"].inputs
        results = program([given[value.kind].clone() for value in inputs])
        outputs = zip(record.programs["forward"].outputs, results, strict=True)
        (result,) = (tensor for value, tensor in outputs if value.kind == "output")
        return result[:, :8], result[:, 8:]

    whole, pieces = run(0)
    again, same = run(0)
    assert torch.equal(whole, again)
    assert torch.equal(pieces, same)
    other_whole, other_pieces = run(1)
    assert torch.equal(whole, other_whole)
    kept, other_kept = pieces != 0, other_pieces != 0
    # Of independent masks about half of the 512 elements differ.
    assert 150 < (kept != other_kept).sum() < 362
    assert 150 < kept.sum() < 362
    # What is kept is scaled by two each time.
    assert torch.equal(pieces[kept], (2 * whole.sum(1, keepdim=True)).expand_as(pieces)[kept])


def test_random_numbers_of_plain_tensors_are_refused_under_tensor_parallelism(
    mesh: DeviceMesh,
) -> None:
    x = torch.ones(64, requires_grad=True)
    with pytest.raises(CompileError) as raised:
        trace_stage(source(Dropping(), x), device=CPU, meshes=[mesh], compiler={})
    assert raised.value.code == "PPC304"
    assert "random" in str(raised.value)


class Noisy(Sharded):
    """Adds noise to the pieces."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)
        pieces = whole @ self.weight.t()
        return (pieces + torch.rand_like(pieces)).to_local()


def test_other_random_numbers_than_those_of_dropout_are_refused(mesh: DeviceMesh) -> None:
    x = torch.ones(4, 8, requires_grad=True)
    with pytest.raises(CompileError) as raised:
        trace_stage(source(Noisy(mesh), x), device=CPU, meshes=[mesh], compiler={})
    assert raised.value.code == "PPC304"
    assert "rand_like" in str(raised.value)
