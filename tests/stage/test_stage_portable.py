"""Graphs name no rank's groups, and keep no gathered parameter alive."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from pp_precompile.contract.errors import CompileError
from pp_precompile.stage.own_gradients import own_gradients
from pp_precompile.stage.portable import register_logical_groups
from pp_precompile.stage.programs import TracedStage, trace_stage
from tests.modules import CPU, source


class Sharded(nn.Module):
    """A linear layer whose weight is gathered from a mesh before use."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        weight = distribute_tensor(torch.empty(8, 8, device="meta"), mesh, [Shard(0)])
        self.weight = nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.redistribute(placements=[Replicate()]).to_local()
        return torch.nn.functional.silu(x @ weight)


@pytest.fixture(params=[0, 3], ids=["rank 0", "rank 3"])
def mesh(request: pytest.FixtureRequest) -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=request.param, world_size=4)
    yield init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",))
    dist.destroy_process_group()


def _trace(mesh: DeviceMesh, meshes: list[DeviceMesh]) -> TracedStage:
    x = torch.empty(4, 8, requires_grad=True)
    return trace_stage(source(Sharded(mesh), x), device=CPU, meshes=meshes, compiler={})


keys_by_rank: dict[str, str] = {}


def test_collectives_name_the_mesh_dimension_on_every_rank(mesh: DeviceMesh) -> None:
    register_logical_groups([mesh])
    stage = _trace(mesh, [mesh])
    text = stage.programs["forward"].graph.print_readable(print_output=False)
    assert "pp_precompile/fsdp" in text
    assert f"'{mesh.get_group().group_name}'" not in text
    keys_by_rank.setdefault("first", stage.programs["forward"].key)
    assert stage.programs["forward"].key == keys_by_rank["first"]


def test_an_unknown_group_is_refused(mesh: DeviceMesh) -> None:
    with pytest.raises(CompileError) as raised:
        _trace(mesh, [])
    assert raised.value.code == "PPC304"
    assert mesh.get_group().group_name in str(raised.value)


def test_gathered_parameters_are_not_saved(mesh: DeviceMesh) -> None:
    stage = _trace(mesh, [mesh])
    saved = [v for v in stage.programs["forward"].outputs if v.kind == "saved" and not v.alias]
    assert all(v.tensor is not None and v.tensor.shape == (4, 8) for v in saved)


def test_layouts_of_parameters_are_described(mesh: DeviceMesh) -> None:
    (weight,) = _trace(mesh, [mesh]).parameters
    assert weight.tensor.shape == (2, 8)
    assert str(weight.tensor.layout) == "fsdp=shard(0)"
    assert weight.tensor.layout is not None
    assert weight.tensor.layout.shape == (8, 8)


def test_gradients_that_share_memory_are_cloned() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    double = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2.0))
    view = graph.call_function(torch.ops.aten.view.default, (double, [4]))
    graph.output((double, view, double, x))
    for node in (x, double, view):
        node.meta["val"] = torch.empty(2, 2)
    module = torch.fx.GraphModule(nn.Module(), graph)
    own_gradients(module)
    value = torch.ones(2, 2)
    results = module(value)
    owners = {r.untyped_storage().data_ptr() for r in (*results, value)}
    assert len(owners) == 5
    assert [r.sum().item() for r in results] == [8.0, 8.0, 8.0, 4.0]
