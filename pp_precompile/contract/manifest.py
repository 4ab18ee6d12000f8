"""The manifest: one build, whole. docs/format.md is its specification."""

from typing import Annotated

import msgspec

from pp_precompile.contract import consistency, encoding
from pp_precompile.contract.digest import Digest, StoredDigest, digest_bytes
from pp_precompile.contract.environment import Environment
from pp_precompile.contract.errors import CorruptError
from pp_precompile.contract.integers import Natural
from pp_precompile.contract.limits import AtMostFactors, AtMostStages, AtMostVariants
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.program import BlobRef, ProgramEntry
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.stage import StageRecord

FORMAT = 4
"""Version of the stored format; another number is refused, never guessed at."""

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""Most bytes that a manifest may have: some ten times what the largest known jobs need."""


class _Header(msgspec.Struct, frozen=True):
    """The one field that every version of the format has; the others are skipped unread."""

    format: int


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All stages once more, for the columns of the mesh that cannot run the build's first ones.

    Where a tensor cannot be cut evenly, ranks have pieces of other sizes and need other programs.
    """

    columns: tuple[Natural, ...]
    stages: Annotated[tuple[StageRecord, ...], AtMostStages]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One build: what it was made from, and every stage with its programs.

    It holds no time, host name, path or rank: the same inputs give the same bytes anywhere.
    """

    format: int
    build_id: StoredDigest
    factors: Annotated[dict[str, str], AtMostFactors]
    environment: Environment
    mesh: MeshSpec
    schedule: ScheduleTable
    stages: Annotated[tuple[StageRecord, ...], AtMostStages]
    variants: Annotated[tuple[Variant, ...], AtMostVariants] = ()

    def to_bytes(self) -> bytes:
        """Return the canonical encoding."""
        return encoding.encode(self)

    @property
    def manifest_id(self) -> Digest:
        """Digest of the canonical encoding: names this manifest, as ``build_id`` names the job."""
        return digest_bytes(self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, *, what: str = "manifest") -> "Manifest":
        """Read and check a manifest from untrusted bytes.

        Raises:
            CorruptError: if the bytes are not canonical, or the manifest contradicts itself
                (PPC205), or its format has another version (PPC206).
        """
        _check_format(data, what)
        manifest = encoding.decode(data, cls, what=what, limit=MAX_MANIFEST_BYTES)
        _check_consistency(manifest, what)
        return manifest

    def blobs(self) -> dict[Digest, BlobRef]:
        """Return every blob that the build needs, by digest."""
        return {
            program.blob.digest: program.blob
            for view in self.views()
            for stage in view.stages
            for _, program in stage.all_programs
        }

    def entries(self) -> dict[Digest, ProgramEntry]:
        """Return what the store may keep for builders of each of the build's programs, by key."""
        return {
            program.key: ProgramEntry(key=program.key, blob=program.blob, kernels=program.kernels)
            for view in self.views()
            for stage in view.stages
            for _, program in stage.all_programs
        }

    def views(self) -> "tuple[Manifest, ...]":
        """Return the build as each group of columns has it: without variants, column 0 first."""
        all_stages = (self.stages, *(variant.stages for variant in self.variants))
        return tuple(self._with_only(stages) for stages in all_stages)

    def view(self, rank: int) -> "Manifest":
        """Return the build as global ``rank`` has it: its stages, and no variants."""
        column = rank % self.mesh.columns
        others = (variant.stages for variant in self.variants if column in variant.columns)
        return self._with_only(next(others, self.stages))

    def _with_only(self, stages: tuple[StageRecord, ...]) -> "Manifest":
        return msgspec.structs.replace(self, stages=stages, variants=())

    def stages_of(self, rank: int) -> tuple[StageRecord, ...]:
        """Return the stages of global ``rank``, in the order of its pipeline rank.

        Raises:
            ValueError: if ``rank`` is not on the mesh.
        """
        pp_rank = self.mesh.coordinate(rank, "pp")
        stages = self.view(rank).stages
        return tuple(stages[i] for i in self.schedule.stages_of_rank[pp_rank])


def _check_format(data: bytes, what: str) -> None:
    header = encoding.peek(data, _Header, what=what, limit=MAX_MANIFEST_BYTES)
    if header.format != FORMAT:
        raise CorruptError(
            "PPC206",
            f"{what} has another format",
            expected=f"format {FORMAT}",
            found=f"format {header.format}",
            hint="read it with the pp_precompile version that wrote it, or build again",
        )


def _check_consistency(manifest: Manifest, what: str) -> None:
    reason = next(consistency.contradictions(manifest), None)
    if reason is not None:
        raise CorruptError(
            "PPC205",
            f"{what} contradicts itself",
            expected="references and numbers that agree",
            found=reason[:300],
            hint="delete it and build again",
        )
