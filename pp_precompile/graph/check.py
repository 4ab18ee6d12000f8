"""All checks in one place: a build against itself, a host and its bytes, and against a job."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import networkx as nx

from pp_precompile.contract.environment import Environment
from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.actions import check_known, check_once, check_order, check_reduction
from pp_precompile.graph.blobs import ReadBlob, check_blobs
from pp_precompile.graph.blocks import check_blocks
from pp_precompile.graph.communication import check_channels, check_pairs
from pp_precompile.graph.conventions import check_conventions
from pp_precompile.graph.cycles import check_acyclic
from pp_precompile.graph.dependency import action_edges, dependency_graph
from pp_precompile.graph.edges import check_activations, check_gradients
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.gradients import check_parameter_gradients
from pp_precompile.graph.handover import check_handover
from pp_precompile.graph.host import check_host
from pp_precompile.graph.identity import check_content, check_form
from pp_precompile.graph.inputs import check_keywords, check_keywords_asked
from pp_precompile.graph.layouts import check_layouts
from pp_precompile.graph.loss import check_loss
from pp_precompile.graph.mesh import check_mesh_asked, check_placement, check_ranks
from pp_precompile.graph.microbatches import (
    check_batch_dimension,
    check_count,
    check_microbatches_asked,
)
from pp_precompile.graph.nearest import differences
from pp_precompile.graph.needed import check_programs
from pp_precompile.graph.order import check_schedule
from pp_precompile.graph.overlap import check_overlap
from pp_precompile.graph.parameters import check_modules, check_owners
from pp_precompile.graph.request import Request
from pp_precompile.graph.split import check_split, check_split_asked
from pp_precompile.graph.timetable import one_of_each, timetable

OF_MANIFEST = (
    check_placement,
    check_split,
    check_count,
    check_batch_dimension,
    check_activations,
    check_gradients,
    check_handover,
    check_loss,
    check_overlap,
    check_conventions,
    check_parameter_gradients,
    check_keywords,
    check_owners,
    check_modules,
    check_layouts,
    check_blocks,
    check_content,
)
"""Checks of a manifest against itself, beside those of its schedule."""

MAX_FINDINGS = 10_000
"""Most errors, and most warnings, that are looked for in a build: one hostile text can be wrong in
millions of ways."""

OF_TIMETABLE = (
    check_known,
    check_once,
    check_order,
    check_reduction,
    check_pairs,
    check_channels,
)
"""Checks of the schedule alone."""


def check_build(
    manifest: Manifest,
    *,
    host: Environment | None = None,
    read_blob: ReadBlob | None = None,
    stages: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
) -> list[Finding]:
    """Return everything that does not fit; a build without an error among it may be loaded.

    Args:
        manifest: the build.
        host: the host that wants to load it; not compared if None.
        read_blob: reads and verifies a blob; blobs are not read if None.
        stages: read the blobs of these stages only.
        ranks: read the blobs of the stages of these global ranks only. What stages and schedule
            say of each other is always checked as a whole: one stage that does not fit stops all.
    """
    findings = list(limited(check_form(manifest)))
    if findings:
        # The other checks rely on indices and names that exist.
        return findings
    found = _checked(manifest, host, read_blob, stages, ranks)
    # Variants have much in common.
    return list(dict.fromkeys(limited(found)))


def limited(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield ``findings`` until there are too many errors; warnings beyond as many are left out."""
    left: dict[str, int] = {"error": MAX_FINDINGS, "warning": MAX_FINDINGS}
    for finding in findings:
        if left[finding.severity]:
            left[finding.severity] -= 1
            yield finding
        elif finding.severity == "error":
            return


def _checked(
    manifest: Manifest,
    host: Environment | None,
    read_blob: ReadBlob | None,
    stages: Collection[int] | None,
    ranks: Collection[int] | None,
) -> Iterator[Finding]:
    if host is not None:
        yield from check_host(manifest, host)
    yield from check_ranks(manifest, sorted(ranks or ()))
    yield from _unknown_stages(manifest, stages or ())
    views = manifest.views()
    for view in views:
        for check in OF_MANIFEST:
            yield from check(view)
    yield from _schedule(views)
    if read_blob is not None:
        for view in views:
            yield from check_blobs(view, read_blob, selected(view, stages, ranks))


def check_table(schedule: ScheduleTable) -> list[Finding]:
    """Return everything for which a schedule cannot run, whatever the programs of its stages."""
    table = timetable(schedule)
    findings = [finding for check in OF_TIMETABLE for finding in check(table)]
    graph = nx.DiGraph(action_edges(table))
    return findings + list(check_acyclic(graph, table))


def selected(
    manifest: Manifest, stages: Collection[int] | None, ranks: Collection[int] | None
) -> set[int]:
    """Return the stages that are asked for by index or by global rank; all if neither is given."""
    everything = set(range(len(manifest.stages)))
    if stages is None and ranks is None:
        return everything
    on_mesh = [rank for rank in ranks or () if 0 <= rank < manifest.mesh.world_size]
    held = {
        index
        for pp_rank in {manifest.mesh.coordinate(rank, "pp") for rank in on_mesh}
        for index in manifest.schedule.stages_of_rank[pp_rank]
    }
    return everything & (held | set(stages or ()))


def check_request(manifest: Manifest, request: Request) -> list[Finding]:
    """Return everything in which a build is not the one that a job asks for."""
    stored = manifest.schedule
    findings = [
        *check_mesh_asked(manifest.mesh, request.mesh),
        *check_split_asked([stage.modules for stage in manifest.stages], request.split),
        *check_microbatches_asked(stored, request.schedule),
        *check_schedule(stored, request.schedule),
        *check_keywords_asked(manifest, request.keywords),
    ]
    return findings + list(_factors(manifest, request))


_COMPARED = ("split[", "schedule.")
"""Factors that the checks above compare part by part."""


def _factors(manifest: Manifest, request: Request) -> Iterator[Finding]:
    for difference in differences(manifest.factors, request.factors):
        name = difference.factor
        if name == "mesh" or name.startswith(_COMPARED):
            continue
        of_host = name.startswith("environment.")
        yield Finding(
            code="PPC102" if of_host else "PPC605",
            message="the build was made for another host"
            if of_host
            else "a key factor is not the one that the job asks for",
            where=Where(field=name),
            expected="no such factor" if difference.asked is None else difference.asked,
            found="no such factor" if difference.stored is None else difference.stored,
            hint="build with the job's arguments, or give the job the build's",
        )


def _schedule(views: Sequence[Manifest]) -> Iterator[Finding]:
    first, *others = views
    table = timetable(first.schedule)
    for check in OF_TIMETABLE:
        yield from check(table)
    graph = dependency_graph(first, table)
    yield from check_programs(first, graph, table)
    yield from check_acyclic(graph, table)
    # One schedule runs them all; what may differ is which programs they have for it.
    brief = timetable(one_of_each(first.schedule))
    for view in others:
        yield from check_programs(view, dependency_graph(view, brief), brief)


def _unknown_stages(manifest: Manifest, stages: Collection[int]) -> Iterator[Finding]:
    count = len(manifest.stages)
    unknown = sorted(stage for stage in stages if not 0 <= stage < count)
    if unknown:
        yield Finding(
            code="PPC105",
            message="the build has no such stage",
            where=Where(stage=unknown[0]),
            expected=f"a stage below {count}",
            found=listed(unknown),
            hint="ask for a stage of the build",
        )
