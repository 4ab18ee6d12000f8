"""Local sizes of shards, and which columns of a mesh are alike."""

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.tensor import Layout
from pp_precompile.graph.columns import alike, group_columns, local_shape
from tests.manifests import make_manifest

ONE_DIM = ("dp_shard",)


@given(size=st.integers(0, 50), ranks=st.integers(1, 9))
def test_pieces_are_those_of_torch_chunk(size: int, ranks: int) -> None:
    mesh = MeshSpec(dims=ONE_DIM, sizes=(ranks,))
    layout = Layout(mesh=("fsdp",), placements=("shard(0)",), shape=(size, 3))
    found = [local_shape(layout, mesh, rank) for rank in range(ranks)]
    chunks = [tuple(piece.shape) for piece in torch.empty(size, 3).chunk(ranks)]
    chunks += [(0, 3)] * (ranks - len(chunks))
    assert found == chunks


def test_inner_dimensions_cut_before_strided_ones() -> None:
    mesh = MeshSpec(dims=("dp_shard", "tp"), sizes=(2, 2))
    layout = Layout(
        mesh=("fsdp", "tp"), placements=("strided_shard(0, 2)", "shard(0)"), shape=(6, 4)
    )
    # Six rows are three for each tp rank, of which the first fsdp rank has two.
    assert [local_shape(layout, mesh, rank)[0] for rank in range(4)] == [2, 2, 1, 1]


def test_columns_with_other_shards_are_apart() -> None:
    (stage,) = make_manifest(1).stages
    mesh = MeshSpec(dims=("pp", "dp_shard"), sizes=(2, 3))

    def with_rows(rows: int) -> object:
        layout = Layout(mesh=("fsdp",), placements=("shard(0)",), shape=(rows, 4))
        item = stage.parameters[0]
        tensor = msgspec.structs.replace(item.tensor, layout=layout)
        return msgspec.structs.replace(
            stage, parameters=(msgspec.structs.replace(item, tensor=tensor),)
        )

    assert alike(mesh, [with_rows(6)]) == [(0, 1, 2)]  # type: ignore[list-item]
    assert alike(mesh, [with_rows(8)]) == [(0, 1), (2,)]  # type: ignore[list-item]
    assert alike(mesh, [with_rows(4)]) == [(0, 1), (2,)]  # type: ignore[list-item]
    assert alike(mesh, [with_rows(1)]) == [(0,), (1, 2)]  # type: ignore[list-item]


def test_what_ranks_hold_is_grouped_by_column() -> None:
    first, second = make_manifest(2).stages
    other = msgspec.structs.replace(second, outputs=())
    ranks = [[first], [first], [first], [second], [other], [second]]
    one, two = group_columns(ranks, columns=3)
    assert (one.columns, one.stages) == ((0, 2), (first, second))
    assert (two.columns, two.stages) == ((1,), (first, other))


@pytest.mark.parametrize(("rank", "expected"), [(0, 2), (1, 1), (2, 2), (3, 1)])
def test_a_rank_takes_the_stages_of_its_column(rank: int, expected: int) -> None:
    manifest = make_manifest(2, dims={"dp": 2})
    first, second = manifest.stages
    stages = (first, msgspec.structs.replace(second, outputs=second.outputs * 2))
    plain = msgspec.structs.replace(manifest, stages=stages)
    both = msgspec.structs.replace(plain, variants=({"columns": (1,), "stages": manifest.stages},))
    both = msgspec.convert(msgspec.to_builtins(both), type(manifest))
    view = both.view(rank)
    assert view.variants == ()
    assert len(view.stages[1].outputs) == expected * len(second.outputs)
    assert both.views() == (both.view(0), both.view(1))
