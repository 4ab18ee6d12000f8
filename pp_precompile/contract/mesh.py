"""The device mesh of a job: named dimensions, their sizes, and how ranks are laid out on it."""

from math import prod
from typing import Annotated

import msgspec

from pp_precompile.contract.integers import Positive
from pp_precompile.contract.limits import AtMostMeshDims, Name

FLATTENED = {
    "fsdp": ("dp_shard", "cp"),
    "batch": ("dp_replicate", "dp_shard"),
    "efsdp": ("dp_shard", "cp", "tp"),
}
"""Mesh dimensions that torchtitan makes of several others (``efsdp`` of what ``ep`` leaves)."""


class MeshSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mesh dimensions, outermost first; global ranks count in row-major order over them.

    torchtitan lays out ``pp`` outermost, then data, context and tensor parallel dimensions. For
    experts it lays out the ranks of ``dp_shard``, ``cp`` and ``tp`` once more, as ``efsdp`` and,
    innermost, ``ep``; ``experts`` is the size of ``ep``.
    """

    dims: Annotated[tuple[Name, ...], AtMostMeshDims]
    sizes: Annotated[tuple[Positive, ...], AtMostMeshDims]
    experts: Positive = 1

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return prod(self.sizes)

    @property
    def columns(self) -> int:
        """Number of ranks that hold a stage: of places in the mesh apart from the pipeline's.

        Column ``c`` holds the global ranks that are ``c`` modulo this number: ``pp`` is outermost.
        """
        return self.world_size // self.size("pp")

    def size(self, dim: str) -> int:
        """Return the size of ``dim``; a dimension that is not there has size 1."""
        if dim == "ep":
            return self.experts
        if dim in FLATTENED:
            return prod(self.size(part) for part in FLATTENED[dim]) // (
                self.experts if dim == "efsdp" else 1
            )
        return dict(zip(self.dims, self.sizes, strict=True)).get(dim, 1)

    def coordinate(self, rank: int, dim: str) -> int:
        """Return the coordinate of global ``rank`` along ``dim`` (0 if there is no such ``dim``).

        Raises:
            ValueError: if ``rank`` is not on the mesh.
        """
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is not on a mesh of {self.world_size} ranks")
        if dim == "ep":
            return rank % self.experts
        if dim in FLATTENED:
            parts = [part for part in FLATTENED[dim] if part in self.dims]
            inner = self.experts if dim == "efsdp" else self._inside(parts[-1]) if parts else 1
            return rank // inner % self.size(dim)
        if dim not in self.dims:
            return 0
        return rank // self._inside(dim) % self.size(dim)

    def _inside(self, dim: str) -> int:
        """Return the number of ranks with one coordinate along ``dim`` and all outer dimensions."""
        return prod(self.sizes[self.dims.index(dim) + 1 :])

    def __str__(self) -> str:
        text = " x ".join(f"{d}={s}" for d, s in zip(self.dims, self.sizes, strict=True))
        return text if self.experts == 1 else f"{text}, ep={self.experts}"
