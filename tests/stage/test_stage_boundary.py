"""Layouts that a stage's boundary cannot have."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from pp_precompile.contract.errors import CompileError
from pp_precompile.contract.tensor import Layout
from pp_precompile.stage.boundary import distributed


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def _layout(placement: str, dim: str = "tp") -> Layout:
    return Layout(mesh=(dim,), placements=(placement,), shape=(4, 6))


def test_a_layout_makes_a_distributed_tensor_of_a_local_one(mesh: DeviceMesh) -> None:
    local = torch.zeros(4, 3, requires_grad=True)
    found = distributed(local, _layout("shard(1)"), [mesh])
    assert isinstance(found, DTensor)
    assert (found.placements, tuple(found.shape)) == ((Shard(1),), (4, 6))
    whole = distributed(torch.zeros(4, 6), _layout("replicate"), [mesh])
    assert isinstance(whole, DTensor)
    assert whole.placements == (Replicate(),)
    assert distributed(local, None, [mesh]) is local


@pytest.mark.parametrize("placement", ["partial(sum)", "strided_shard(1, 2)"])
def test_a_placement_that_cannot_be_passed_on_is_refused(placement: str, mesh: DeviceMesh) -> None:
    with pytest.raises(CompileError) as raised:
        distributed(torch.zeros(4, 3), _layout(placement), [mesh])
    assert raised.value.code == "PPC304"
    assert placement in str(raised.value)


def test_a_mesh_that_stages_do_not_have_is_refused(mesh: DeviceMesh) -> None:
    with pytest.raises(CompileError) as raised:
        distributed(torch.zeros(4, 3), _layout("shard(1)", "cp"), [mesh])
    assert raised.value.code == "PPC304"
    assert "cp=shard(1)" in str(raised.value)
