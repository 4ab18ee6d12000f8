"""Which columns of the mesh can run the same programs.

A column is what ranks have in common that differ in their place in the pipeline alone. Columns
whose parameters have other local sizes, since a tensor cannot be cut evenly, need programs of their
own.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence

from pp_precompile.contract import encoding
from pp_precompile.contract.manifest import Variant
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import Layout


def alike(mesh: MeshSpec, stages: Iterable[StageRecord]) -> list[tuple[int, ...]]:
    """Return the columns of ``mesh`` in groups that hold parameters and buffers of the same sizes.

    Groups and their columns ascend; the first group is that of column 0.
    """
    items = [item for stage in stages for item in (*stage.parameters, *stage.buffers)]
    layouts = {item.tensor.layout for item in items if item.tensor.layout is not None}
    ordered = sorted(layouts, key=repr)
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = collections.defaultdict(list)
    for column in range(mesh.columns):
        groups[tuple(local_shape(layout, mesh, column) for layout in ordered)].append(column)
    return sorted(map(tuple, groups.values()))


def group_columns(stages_of_rank: Sequence[Iterable[StageRecord]], columns: int) -> list[Variant]:
    """Return what all ranks hold, once for each group of columns that hold the same.

    The first group is that of column 0. ``stages_of_rank`` has one item for each global rank.
    """
    of_column: dict[int, dict[int, StageRecord]] = collections.defaultdict(dict)
    for rank, stages in enumerate(stages_of_rank):
        of_column[rank % columns].update((stage.index, stage) for stage in stages)
    groups: dict[bytes, list[int]] = {}
    for column, by_index in sorted(of_column.items()):
        groups.setdefault(encoding.encode(_in_order(by_index)), []).append(column)
    return [
        Variant(columns=tuple(group), stages=_in_order(of_column[group[0]]))
        for group in groups.values()
    ]


def _in_order(by_index: Mapping[int, StageRecord]) -> tuple[StageRecord, ...]:
    return tuple(by_index[index] for index in sorted(by_index))


def local_shape(layout: Layout, mesh: MeshSpec, rank: int) -> tuple[int, ...]:
    """Return the local sizes of a tensor on global ``rank``, cut as ``torch.chunk`` cuts."""
    shape = list(layout.shape)
    for name, dim in layout.cuts():
        size, ranks = shape[dim], mesh.size(name)
        piece = -(-size // ranks)
        start = piece * mesh.coordinate(rank, name)
        shape[dim] = max(0, min(piece, size - start))
    return tuple(shape)
