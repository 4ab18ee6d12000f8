"""Mesh coordinates: row-major, outermost dimension first."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.mesh import MeshSpec

MESH = MeshSpec(dims=("pp", "dp", "tp"), sizes=(2, 3, 2))

SIZES = st.lists(st.integers(1, 4), max_size=4)


def test_coordinates_of_a_known_rank() -> None:
    assert [MESH.coordinate(9, dim) for dim in MESH.dims] == [1, 1, 1]
    assert [MESH.coordinate(rank, "pp") for rank in (0, 5, 6, 11)] == [0, 0, 1, 1]


@given(SIZES)
def test_ranks_count_in_row_major_order(sizes: list[int]) -> None:
    mesh = MeshSpec(dims=tuple(f"d{i}" for i in range(len(sizes))), sizes=tuple(sizes))
    wanted = list(itertools.product(*(range(size) for size in sizes)))
    found = [
        tuple(mesh.coordinate(rank, dim) for dim in mesh.dims) for rank in range(mesh.world_size)
    ]
    assert found == wanted


def test_a_dimension_that_is_not_there_has_size_one() -> None:
    assert (MESH.size("cp"), MESH.coordinate(7, "cp")) == (1, 0)
    assert (MESH.size("dp"), MESH.world_size) == (3, 12)


def test_no_dimensions_is_one_rank() -> None:
    empty = MeshSpec(dims=(), sizes=())
    assert (empty.world_size, empty.coordinate(0, "pp"), str(empty)) == (1, 0, "")


@pytest.mark.parametrize("rank", [-1, 12])
def test_a_rank_outside_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank {rank} is not on a mesh of 12 ranks"):
        MESH.coordinate(rank, "pp")


def test_text() -> None:
    assert str(MESH) == "pp=2 x dp=3 x tp=2"
