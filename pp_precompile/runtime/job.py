"""What a front end tells of its job, so that its stages can be acquired."""

from collections.abc import Mapping
from typing import Literal, Protocol

import torch
from torch import nn

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.environment import Environment
from pp_precompile.contract.errors import CompileError
from pp_precompile.contract.manifest import FORMAT, Manifest, Variant
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.check import check_build
from pp_precompile.graph.refuse import refuse
from pp_precompile.stage.boundary import Meshes
from pp_precompile.stage.private_torch import BoxedCallable
from pp_precompile.stage.programs import TracedStage

Policy = Literal["auto", "strict"]
"""What to do if no stored build fits: compile what is missing and store it, or stop all ranks."""


class Job(Protocol):
    """One training job: the same facts from a build and on every rank, whoever trains."""

    @property
    def build_id(self) -> Digest:
        """Digest of the factors: the identity of the build that this job needs."""

    @property
    def factors(self) -> Mapping[str, str]:
        """Everything that can reach the job's programs, by name."""

    @property
    def environment(self) -> Environment:
        """Software and device of this host."""

    @property
    def device(self) -> torch.device:
        """The device of this rank."""

    @property
    def mesh(self) -> MeshSpec:
        """The mesh of all ranks."""

    @property
    def schedule(self) -> ScheduleTable:
        """What each pipeline rank does in a step."""

    @property
    def how_to_build(self) -> str:
        """What a user does who lacks the build."""

    def meshes(self) -> Meshes:
        """Return the one-dimensional meshes whose groups stage programs communicate over."""

    def trace_all(self, modules: Mapping[int, nn.Module]) -> dict[int, TracedStage]:
        """Trace stage modules by stage index.

        Raises:
            CompileError: if one cannot be traced, or is not portable.
        """

    def unpack(self, code: bytes) -> BoxedCallable:
        """Make a program callable from the code in its blob, which was verified."""


def checked_manifest(
    job: Job, stages: tuple[StageRecord, ...], variants: tuple[Variant, ...] = ()
) -> Manifest:
    """Return the manifest of a build of ``job`` with these stages, which fit together.

    Raises:
        CompileError: with the code of what does not fit.
    """
    manifest = Manifest(
        format=FORMAT,
        build_id=job.build_id,
        factors=dict(job.factors),
        environment=job.environment,
        mesh=job.mesh,
        schedule=job.schedule,
        stages=stages,
        variants=variants,
    )
    refuse(check_build(manifest), f"build {manifest.build_id[:12]}", error=CompileError)
    return manifest
