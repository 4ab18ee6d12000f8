"""The device mesh of a job: named dimensions, their sizes, and how ranks are laid out on it."""

from math import prod

import msgspec

from pp_precompile.contract.integers import Positive


class MeshSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mesh dimensions, outermost first; global ranks count in row-major order over them.

    torchtitan lays out ``pp`` outermost, then data, context and tensor parallel dimensions.
    """

    dims: tuple[str, ...]
    sizes: tuple[Positive, ...]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return prod(self.sizes)

    def size(self, dim: str) -> int:
        """Return the size of ``dim``; a dimension that is not there has size 1."""
        return dict(zip(self.dims, self.sizes, strict=True)).get(dim, 1)

    def coordinate(self, rank: int, dim: str) -> int:
        """Return the coordinate of global ``rank`` along ``dim`` (0 if there is no such ``dim``).

        Raises:
            ValueError: if ``rank`` is not on the mesh.
        """
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is not on a mesh of {self.world_size} ranks")
        if dim not in self.dims:
            return 0
        inner = prod(self.sizes[self.dims.index(dim) + 1 :])
        return rank // inner % self.size(dim)

    def __str__(self) -> str:
        return " x ".join(f"{d}={s}" for d, s in zip(self.dims, self.sizes, strict=True))
