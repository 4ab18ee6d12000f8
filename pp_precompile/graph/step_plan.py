"""What a step of a build costs: memory of each rank and stage, waiting, and bytes to load."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import BlobRef
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.graph.bubble import bubble_of
from pp_precompile.graph.held import held
from pp_precompile.graph.in_flight import in_flight
from pp_precompile.graph.memory import peaks
from pp_precompile.graph.simulate import Simulation
from pp_precompile.graph.times import Times


class StagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One stage, as one rank of ``columns`` holds it; sizes are bytes.

    ``saved_bytes``, ``loss_bytes`` and ``kept_bytes`` are those of one microbatch, ``kept_bytes``
    None if all its backwards run whole; ``gathered_bytes`` are gathered parameters and
    gradients to reduce, once a step. With ``at_least``, sizes that depend on data are left out.
    """

    stage: int
    pp_rank: int
    columns: tuple[int, ...]
    parameter_bytes: int
    gradient_bytes: int
    saved_bytes: int
    loss_bytes: int
    kept_bytes: int | None
    gathered_bytes: int
    in_flight: int
    at_least: bool


class RankPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks at one place of the pipeline do and hold in a step; sizes are bytes.

    ``columns`` are those of a variant; they are empty for all ranks that no variant lists.
    ``activation_bytes``, ``gathered_bytes`` and ``peak_bytes`` (of both together) are the most at
    one moment; ``peak_action`` is the first action after which the activations are at their peak.
    ``busy`` and ``waiting`` are times.
    """

    pp_rank: int
    columns: tuple[int, ...]
    stages: tuple[int, ...]
    parameter_bytes: int
    gradient_bytes: int
    activation_bytes: int
    gathered_bytes: int
    peak_bytes: int
    peak_action: str
    at_least: bool
    load_bytes: int
    blobs: int
    busy: float
    waiting: float


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One build and one step of it; ``unit`` says what times count."""

    build: Digest
    mesh: str
    world_size: int
    schedule: str
    csv: Digest | None
    microbatches: int
    microbatch_size: int
    unit: Literal["unit", "second"]
    step: float
    bubble: float
    ranks: tuple[RankPlan, ...]
    stages: tuple[StagePlan, ...]

    @property
    def worst(self) -> RankPlan:
        """The first rank whose activations need most."""
        return max(self.ranks, key=lambda rank: rank.activation_bytes)


def plan_step(manifest: Manifest, simulation: Simulation, times: Times) -> StepPlan:
    """Return what a step of ``manifest`` costs.

    Args:
        manifest: a build whose schedule can run.
        simulation: of its schedule, with ``times``.
        times: how long actions take.

    Raises:
        StaleBuildError: PPC105 if the schedule runs a backward in parts that the build lacks.
    """
    most = in_flight(manifest.schedule)
    planned = [_View(columns, stages, simulation, most) for columns, stages in _views(manifest)]
    schedule = manifest.schedule
    return StepPlan(
        build=manifest.build_id,
        mesh=str(manifest.mesh),
        world_size=manifest.mesh.world_size,
        schedule=schedule.name,
        csv=schedule.csv,
        microbatches=schedule.microbatches,
        microbatch_size=schedule.microbatch_size,
        unit=times.unit,
        step=simulation.step,
        bubble=float(bubble_of(simulation)),
        ranks=tuple(one for view in planned for one in view.ranks()),
        stages=tuple(one for view in planned for one in view.stages()),
    )


Columns = tuple[int, ...]
_Stages = Sequence[StageRecord]


def _views(manifest: Manifest) -> list[tuple[Columns, _Stages]]:
    """Return the stages of each group of columns; the first group is all that are not listed."""
    return [((), manifest.stages), *((v.columns, v.stages) for v in manifest.variants)]


class _View:
    """The stages of one group of columns, under one schedule."""

    def __init__(
        self, columns: Columns, stages: _Stages, simulation: Simulation, most: dict[int, int]
    ) -> None:
        self._columns, self._records = columns, stages
        self._simulation, self._most = simulation, most
        self._held = {stage.index: held(stage) for stage in stages}
        self._in_parts = {stage for stage, kind, _ in simulation.table.places if kind == "I"}

    def stages(self) -> Iterable[StagePlan]:
        return map(self._stage, self._records)

    def ranks(self) -> Iterable[RankPlan]:
        return map(self._rank, range(len(self._simulation.table.ranks)))

    def _stage(self, stage: StageRecord) -> StagePlan:
        own = self._held[stage.index]
        return StagePlan(
            stage=stage.index,
            pp_rank=self._simulation.table.owner[stage.index],
            columns=self._columns,
            parameter_bytes=parameter_bytes(stage),
            gradient_bytes=_gradients(stage),
            saved_bytes=own.saved,
            loss_bytes=own.loss,
            kept_bytes=own.kept if stage.index in self._in_parts else None,
            gathered_bytes=own.gathered + own.unreduced,
            in_flight=self._most[stage.index],
            at_least=own.at_least,
        )

    def _rank(self, rank: int) -> RankPlan:
        table = self._simulation.table
        schedule: ScheduleTable = table.schedule
        records = [self._records[index] for index in schedule.stages_of_rank[rank]]
        actions = table.ranks[rank]
        top = peaks(actions, self._held, schedule.microbatches)
        blobs = _blobs(records)
        busy = self._simulation.busy(rank)
        return RankPlan(
            pp_rank=rank,
            columns=self._columns,
            stages=tuple(record.index for record in records),
            parameter_bytes=sum(map(parameter_bytes, records)),
            gradient_bytes=sum(map(_gradients, records)),
            activation_bytes=top.activations.activations,
            gathered_bytes=top.gathered.gathered,
            peak_bytes=top.both.both,
            peak_action=str(actions[top.activations.position]) if actions else "",
            at_least=any(self._held[record.index].at_least for record in records),
            load_bytes=sum(ref.size for ref in blobs),
            blobs=len(blobs),
            busy=busy,
            waiting=max(0, self._simulation.step - busy),
        )


def _blobs(stages: Iterable[StageRecord]) -> list[BlobRef]:
    """Return every blob that a rank with these stages reads, each once."""
    programs = (program for stage in stages for _, program in stage.all_programs)
    return list({program.blob.digest: program.blob for program in programs}.values())


def parameter_bytes(stage: StageRecord) -> int:
    """Return the bytes of a stage's parameters as one rank holds them."""
    return _bytes(stage.parameters)


def _gradients(stage: StageRecord) -> int:
    return _bytes(item for item in stage.parameters if item.tensor.requires_grad)


def _bytes(items: Iterable[NamedTensor]) -> int:
    return sum(item.tensor.nbytes for item in items)
