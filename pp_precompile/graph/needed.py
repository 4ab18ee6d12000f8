"""Every program that an action of the schedule runs is in the build."""

from collections.abc import Iterator

import networkx as nx

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ROLES
from pp_precompile.graph.dependency import missing_programs
from pp_precompile.graph.finding import Finding, listed


def check_programs(manifest: Manifest, graph: nx.DiGraph) -> Iterator[Finding]:
    """Yield PPC105 for each program that actions need and the build does not hold."""
    for (stage, role), needing in sorted(missing_programs(graph).items()):
        actions = [node for node in needing if node[0] == "action"]
        texts = [manifest.schedule.actions[rank][int(position)] for _, rank, position in actions]
        rank = actions[0][1] if actions else None
        yield Finding(
            code="PPC105",
            message=f"stage {stage} has no {role} program",
            where=Where(stage=stage, rank=rank, program=role),
            expected=f"a {role} program, for {listed(texts) if texts else 'other programs'}",
            found=f"programs {listed(manifest.stages[stage].programs)}",
            hint="build again with the job's schedule"
            if role in ROLES
            else "this version has no such programs: choose a schedule with whole backward actions",
        )
