"""Builds, and schedules from files for the stages of a build, side by side."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Literal

import msgspec

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramRecord, Role
from pp_precompile.contract.schedule_file import ScheduleFile
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.bubble import bubble_of
from pp_precompile.graph.demand import demand
from pp_precompile.graph.loss import has_loss
from pp_precompile.graph.parts import holds
from pp_precompile.graph.runnable import simulated
from pp_precompile.graph.step_plan import parameter_bytes, plan_step
from pp_precompile.graph.times import Times


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with the stages that it runs.

    ``name`` is what the user called it; ``manifest`` has the schedule in place of its own;
    ``missing`` are the programs that the schedule runs and no build of the store holds.
    """

    name: str
    manifest: Manifest
    missing: tuple[tuple[int, Role], ...]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What a user chooses by; sizes are bytes, and those of the rank that needs most.

    Those that depend on programs are None if some are missing; ``missing`` lists these as
    ``stage 1 backward_input``. ``programs`` counts what the schedule runs.
    """

    name: str
    build: Digest
    schedule: str
    ranks: int
    stages: int
    microbatches: int
    unit: Literal["unit", "second"]
    step: float
    bubble: float
    parameter_bytes: int
    activation_bytes: int | None
    gathered_bytes: int | None
    peak_bytes: int | None
    load_bytes: int | None
    at_least: bool
    programs: int
    missing: tuple[str, ...]


def of_build(name: str, manifest: Manifest) -> Candidate:
    """Return a build as it is."""
    return Candidate(name=name, manifest=manifest, missing=_missing(manifest))


def of_file(name: str, file: ScheduleFile, base: Manifest, others: Iterable[Manifest]) -> Candidate:
    """Return the stages of ``base`` under the schedule of a file.

    Programs that ``base`` lacks are taken from stages of ``others`` with the same forward program:
    what is saved, and so what a backward takes, is then the same. ``name`` is the file's.

    Raises:
        UsageError: PPC003 if the file is for another number of stages.
    """
    stages = sum(map(len, file.stages_of_rank))
    if stages != len(base.stages):
        raise UsageError(
            "PPC003",
            f"{name} is a schedule for another number of stages than the build's",
            expected=f"{len(base.stages)} stages, as build {base.build_id} has",
            found=f"{stages} stages",
            hint="choose a file for this number, or a build with the file's",
        )
    size = base.schedule.microbatch_size
    schedule = file.table(PurePath(name).stem, microbatch_size=size)
    with_all = _completed(base.stages, demand(schedule, base.stages, loss=has_loss(base)), others)
    manifest = msgspec.structs.replace(base, schedule=schedule, stages=with_all, variants=())
    return Candidate(name=name, manifest=manifest, missing=_missing(manifest))


def compared(candidate: Candidate, times: Times) -> Line:
    """Return the line of one candidate.

    Raises:
        StaleBuildError: PPC521 to PPC526 for a schedule that cannot run.
        UsageError: PPC007 if ``times`` lacks the time of an action.
    """
    manifest = candidate.manifest
    schedule = manifest.schedule
    simulation = simulated(schedule, times, what=f"the schedule of {candidate.name}")
    plan = None if candidate.missing else plan_step(manifest, simulation, times)
    ranks = plan.ranks if plan else ()
    by_rank = [
        sum(parameter_bytes(stages[index]) for index in held)
        for stages in (view.stages for view in manifest.views())
        for held in schedule.stages_of_rank
    ]
    return Line(
        name=candidate.name,
        build=manifest.build_id,
        schedule=schedule.name,
        ranks=len(schedule.stages_of_rank),
        stages=len(manifest.stages),
        microbatches=schedule.microbatches,
        unit=times.unit,
        step=simulation.step,
        bubble=float(bubble_of(simulation)),
        parameter_bytes=max(by_rank),
        activation_bytes=_most(rank.activation_bytes for rank in ranks),
        gathered_bytes=_most(rank.gathered_bytes for rank in ranks),
        peak_bytes=_most(rank.peak_bytes for rank in ranks),
        load_bytes=_most(rank.load_bytes for rank in ranks),
        at_least=any(rank.at_least for rank in ranks),
        programs=sum(
            len(manifest.stages[stage].units)
            for stage, _ in demand(schedule, manifest.stages, loss=has_loss(manifest))
        ),
        missing=tuple(f"stage {stage} {role}" for stage, role in candidate.missing),
    )


def _most(sizes: Iterable[int]) -> int | None:
    return max(sizes, default=None)


def _missing(manifest: Manifest) -> tuple[tuple[int, Role], ...]:
    """Return what the schedule runs and a stage, in one variant or another, does not have."""
    missing = {
        (stage, role): None
        for view in manifest.views()
        for stage, role in demand(view.schedule, view.stages, loss=has_loss(view))
        if not holds(view.stages[stage], role)
    }
    return tuple(missing)


def _completed(
    stages: Sequence[StageRecord], needed: Sequence[tuple[int, Role]], others: Iterable[Manifest]
) -> tuple[StageRecord, ...]:
    """Return ``stages`` with the programs that are needed, as far as there are any, and no more.

    Stages of blocks are left as they are: they have one set of programs for every schedule.
    """
    if any(stage.blocks is not None for stage in stages):
        return tuple(stages)
    like = {stage.programs["forward"].key: dict(stage.programs) for stage in stages}
    for other in others:
        for stage in other.stages:
            if stage.blocks is not None:
                continue
            known = like.get(stage.programs["forward"].key)
            if known is not None:
                for role, program in stage.programs.items():
                    known.setdefault(role, program)
    roles: dict[int, list[Role]] = {}
    for index, role in needed:
        roles.setdefault(index, []).append(role)
    return tuple(
        msgspec.structs.replace(
            stage,
            programs=_chosen(
                {**like[stage.programs["forward"].key], **stage.programs}, roles[stage.index]
            ),
        )
        for stage in stages
    )


def _chosen(
    programs: Mapping[str, ProgramRecord], roles: Iterable[Role]
) -> dict[str, ProgramRecord]:
    return {role: programs[role] for role in roles if role in programs}
