"""Which columns of the mesh can run the same programs.

A column is what ranks have in common that differ in their place in the pipeline alone. Columns
whose parameters have other local sizes, since a tensor cannot be cut evenly, need programs of their
own.
"""

import collections
from collections.abc import Iterable, Sequence

from pp_precompile.contract import encoding
from pp_precompile.contract.manifest import Variant
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import Layout


def alike(
    mesh: MeshSpec, stages: Iterable[StageRecord], *, apart: Iterable[str] = ()
) -> list[tuple[int, ...]]:
    """Return the columns of ``mesh`` in groups that hold parameters and buffers of the same sizes.

    Columns with other coordinates along the dimensions ``apart`` are in other groups. Groups and
    their columns ascend; the first group is that of column 0.
    """
    dims = tuple(apart)
    items = [item for stage in stages for item in (*stage.parameters, *stage.buffers)]
    layouts = {item.tensor.layout for item in items if item.tensor.layout is not None}
    ordered = sorted(layouts, key=repr)
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = collections.defaultdict(list)
    for column in range(mesh.columns):
        shapes = tuple(local_shape(layout, mesh, column) for layout in ordered)
        key = (tuple(mesh.coordinate(column, dim) for dim in dims), *shapes)
        groups[key].append(column)
    return sorted(map(tuple, groups.values()))


def group_columns(stages_of_rank: Sequence[Iterable[StageRecord]], columns: int) -> list[Variant]:
    """Return what all ranks hold, once for each group of columns that hold the same.

    The first group is that of column 0. ``stages_of_rank`` has one item for each global rank.
    """
    of_column: dict[int, dict[int, StageRecord]] = collections.defaultdict(dict)
    for rank, stages in enumerate(stages_of_rank):
        of_column[rank % columns].update((stage.index, stage) for stage in stages)
    return merged(
        Variant(columns=(column,), stages=tuple(by_index[index] for index in sorted(by_index)))
        for column, by_index in of_column.items()
    )


def merged(variants: Iterable[Variant]) -> list[Variant]:
    """Return ``variants`` with those that hold the same made one, in order of their columns."""
    groups: dict[bytes, tuple[list[int], tuple[StageRecord, ...]]] = {}
    for variant in variants:
        key = encoding.encode(variant.stages)
        columns, _ = groups.setdefault(key, ([], variant.stages))
        columns.extend(variant.columns)
    return sorted(
        (Variant(columns=tuple(sorted(c)), stages=stages) for c, stages in groups.values()),
        key=lambda variant: variant.columns,
    )


def local_shape(layout: Layout, mesh: MeshSpec, rank: int) -> tuple[int, ...]:
    """Return the local sizes of a tensor on global ``rank``, cut as ``torch.chunk`` cuts."""
    shape = list(layout.shape)
    for name, dim in layout.cuts():
        size, ranks = shape[dim], mesh.size(name)
        piece = -(-size // ranks)
        start = piece * mesh.coordinate(rank, name)
        shape[dim] = max(0, min(piece, size - start))
    return tuple(shape)
