"""Every program that an action of the schedule runs is in the build."""

from collections.abc import Iterator

import networkx as nx

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.dependency import missing_programs
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.timetable import Timetable


def check_programs(
    manifest: Manifest, graph: nx.DiGraph, timetable: Timetable
) -> Iterator[Finding]:
    """Yield PPC105 for each program that actions need and the build does not hold."""
    for (stage, role), needing in sorted(missing_programs(graph).items()):
        # Only actions need a program that is not there: values lead to and from stored ones.
        texts = [timetable.ranks[rank][int(position)] for _, rank, position in needing]
        yield Finding(
            code="PPC105",
            message=f"stage {stage} has no {role} program",
            where=Where(stage=stage, rank=needing[0][1], program=role),
            expected=f"a {role} program, for {listed(texts)}",
            found=f"programs {listed(name for name, _ in manifest.stages[stage].all_programs)}",
            hint="build again with the job's schedule",
        )
