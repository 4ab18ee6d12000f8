"""What a build will make, before anything is compiled: its stages, programs and their sizes."""

from collections.abc import Callable
from typing import Literal

import msgspec

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ROLES
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.graph.in_flight import in_flight
from pp_precompile.graph.parts import parts_of

Source = Literal["compile", "build", "store"]
"""Where a program comes from: it is compiled, shared with an earlier one of the same build, or
in the store already."""


class PlannedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One program; ``inputs`` and ``outputs`` count the values that it takes and returns.

    ``role`` stands behind its block's name where the stage runs by blocks.
    """

    role: str
    key: Digest
    inputs: int
    outputs: int
    source: Source


class PlannedStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage; ``pp_rank`` is the pipeline coordinate of the ranks that run it.

    ``parameter_bytes`` are those of one rank: of its shards, where parameters are sharded.
    ``saved_bytes`` are what one microbatch keeps from its forward to its backward; ``in_flight``
    is the most microbatches that do so at once.
    """

    stage: int
    pp_rank: int
    modules: tuple[str, ...]
    arguments: tuple[NamedTensor, ...]
    keywords: tuple[NamedTensor, ...]
    outputs: tuple[TensorSpec, ...]
    parameter_bytes: int
    saved_bytes: int
    in_flight: int
    programs: tuple[PlannedProgram, ...]


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One build, for devices of type ``device``; ``microbatch_size`` counts sequences."""

    build: Digest
    device: str
    mesh: str
    ranks: int
    schedule: str
    microbatches: int
    microbatch_size: int
    stages: tuple[PlannedStage, ...]

    @property
    def programs(self) -> list[PlannedProgram]:
        """The programs of all stages, in the order in which they are compiled."""
        return [program for stage in self.stages for program in stage.programs]

    def keys(self, source: Source | None = None) -> set[Digest]:
        """Return the distinct keys of the programs that come from ``source``, or of all."""
        return {item.key for item in self.programs if source is None or item.source == source}

    def against(self, stored: Callable[[Digest], bool]) -> "BuildPlan":
        """Return the same plan for a store; ``stored`` tells by key what it holds."""
        held = {key for key in self.keys() if stored(key)}
        stages = tuple(
            msgspec.structs.replace(
                stage,
                programs=tuple(
                    msgspec.structs.replace(item, source="store") if item.key in held else item
                    for item in stage.programs
                ),
            )
            for stage in self.stages
        )
        return msgspec.structs.replace(self, stages=stages)


def plan_of(manifest: Manifest) -> BuildPlan:
    """Return the plan that leads to ``manifest``, with an empty store.

    Blobs are not looked at: a manifest of programs that are only traced will do.
    """
    schedule = manifest.schedule
    seen: set[Digest] = set()
    most = in_flight(schedule)
    return BuildPlan(
        build=manifest.build_id,
        device=manifest.environment.device.type,
        mesh=str(manifest.mesh),
        ranks=manifest.mesh.world_size,
        schedule=schedule.name,
        microbatches=schedule.microbatches,
        microbatch_size=schedule.microbatch_size,
        stages=tuple(_stage(stage, schedule, most[stage.index], seen) for stage in manifest.stages),
    )


def _stage(
    stage: StageRecord, schedule: ScheduleTable, most: int, seen: set[Digest]
) -> PlannedStage:
    """Describe ``stage``, of which ``most`` microbatches are under way at once.

    ``seen`` gathers the keys of the stages so far.
    """
    programs = []
    for part in parts_of(stage):
        for role in ROLES:
            program = part.record.programs.get(role)
            if program is None:
                continue
            programs.append(
                PlannedProgram(
                    role=part.named(role),
                    key=program.key,
                    inputs=len(program.inputs),
                    outputs=len(program.outputs),
                    source="build" if program.key in seen else "compile",
                )
            )
            seen.add(program.key)
    return PlannedStage(
        stage=stage.index,
        pp_rank=schedule.owner(stage.index),
        modules=stage.modules,
        arguments=stage.arguments,
        keywords=stage.keywords,
        outputs=stage.outputs,
        parameter_bytes=sum(item.tensor.nbytes for item in stage.parameters),
        saved_bytes=stage.saved_bytes,
        in_flight=most,
        programs=tuple(programs),
    )
