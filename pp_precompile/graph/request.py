"""What a job asks of a build: the plain facts, so that no torch is needed to compare them."""

from collections.abc import Mapping
from dataclasses import dataclass

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.schedule import ScheduleTable


@dataclass(frozen=True, kw_only=True)
class Request:
    """One job: its key factors and its plan.

    ``split`` are the module FQNs of each stage; ``keywords`` the keyword inputs that every stage
    is called with.
    """

    factors: Mapping[str, str]
    mesh: MeshSpec
    split: tuple[tuple[str, ...], ...]
    schedule: ScheduleTable
    keywords: frozenset[str]

    @property
    def build_id(self) -> Digest:
        """The id of the build that the job asks for."""
        return build_id(self.factors)


def request_of(manifest: Manifest) -> Request:
    """Return the request that ``manifest`` answers."""
    return Request(
        factors=manifest.factors,
        mesh=manifest.mesh,
        split=tuple(stage.modules for stage in manifest.stages),
        schedule=manifest.schedule,
        keywords=frozenset(item.name for item in manifest.stages[0].keywords),
    )
