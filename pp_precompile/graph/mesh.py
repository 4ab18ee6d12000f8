"""Which rank holds which stages: placement in loop or V style, and the mesh of the job."""

from collections.abc import Iterator, Sequence

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.graph.finding import Finding, listed

V_SCHEDULES = frozenset({"ZBVZeroBubble", "DualPipeV"})
"""Schedules that deal stages out to the ranks and back again, two for each rank."""

Placement = tuple[tuple[int, ...], ...]


def loop_placement(ranks: int, stages: int) -> Placement:
    """Return the stages of each rank, dealt out round by round."""
    return tuple(tuple(range(rank, stages, ranks)) for rank in range(ranks))


def v_placement(ranks: int) -> Placement:
    """Return the stages of each rank, dealt out once forth and once back."""
    return tuple((rank, 2 * ranks - 1 - rank) for rank in range(ranks))


def check_placement(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC527 unless the stages lie as the named schedule needs them.

    That goes for a schedule from a file as well: torchtitan takes the placement from the schedule
    that the job names beside it.
    """
    schedule = manifest.schedule
    ranks = len(schedule.stages_of_rank)
    in_v = schedule.name in V_SCHEDULES
    wanted = v_placement(ranks) if in_v else loop_placement(ranks, schedule.stages)
    placed = tuple(tuple(sorted(held)) for held in schedule.stages_of_rank)
    if placed == wanted:
        return
    pairs = enumerate(zip(placed, wanted, strict=True))
    rank = next(rank for rank, (mine, other) in pairs if mine != other)
    yield Finding(
        code="PPC527",
        message=f"the stages of rank {rank} are not those that {schedule.name} gives it",
        where=Where(rank=rank, field="schedule.stages_of_rank"),
        expected=_text(wanted, rank),
        found=_text(placed, rank),
        hint="name a schedule that places stages so: ZBVZeroBubble or DualPipeV for a V, others "
        "for a loop",
    )


def check_ranks(manifest: Manifest, ranks: Sequence[int]) -> Iterator[Finding]:
    """Yield PPC533 for each of ``ranks`` (global ones) that the mesh does not have."""
    for rank in ranks:
        if not 0 <= rank < manifest.mesh.world_size:
            yield Finding(
                code="PPC533",
                message=f"the build has no rank {rank}",
                where=Where(rank=rank),
                expected=f"a rank below {manifest.mesh.world_size} ({manifest.mesh})",
                found=str(rank),
                hint="ask for a rank of the job",
            )


def check_mesh_asked(stored: MeshSpec, asked: MeshSpec) -> Iterator[Finding]:
    """Yield PPC603 if dimensions, sizes or their order differ."""
    if stored != asked:
        yield Finding(
            code="PPC603",
            message="the stored mesh is not the one that the job asks for",
            where=Where(field="mesh"),
            expected=f"{asked} = {asked.world_size} ranks",
            found=f"{stored} = {stored.world_size} ranks",
            hint="build with the job's degrees, or give the job the build's",
        )


def _text(placement: Placement, rank: int) -> str:
    return f"stages {listed(placement[rank])} on rank {rank}"
