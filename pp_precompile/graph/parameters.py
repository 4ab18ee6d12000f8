"""Each parameter and buffer belongs to one stage, and to a module of that stage."""

from collections.abc import Iterator, Set

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.finding import Finding, listed


def check_owners(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC514 for a name in two stages: tied weights would drift apart in training."""
    owners: dict[str, list[int]] = {}
    for stage in manifest.stages:
        for item in (*stage.parameters, *stage.buffers):
            owners.setdefault(item.name, []).append(stage.index)
    for name, stages in owners.items():
        if len(stages) > 1:
            yield Finding(
                code="PPC514",
                message=f"{name} is in more than one stage",
                where=Where(stage=stages[1], field=name),
                expected="each parameter and buffer in one stage, once",
                found=f"stages {listed(stages)}",
                hint="untie shared weights, or keep their modules in one stage",
            )


def check_modules(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC515 for each stage that has state outside its modules, or a module without any."""
    for stage in manifest.stages:
        modules = set(stage.modules)
        lengths = {len(name) for name in modules}
        outside = [
            item.name
            for item in (*stage.parameters, *stage.buffers)
            if not _is_inside(item.name, modules, lengths)
        ]
        if outside:
            yield Finding(
                code="PPC515",
                message=f"stage {stage.index} has parameters or buffers outside its modules",
                where=Where(stage=stage.index, field=outside[0]),
                expected=f"state of {listed(stage.modules)}",
                found=listed(outside),
            )


def _is_inside(name: str, modules: Set[str], lengths: Set[int]) -> bool:
    """Tell whether a module's name and a dot begin ``name``; no more is cut than can match."""
    return any(name[n : n + 1] == "." and name[:n] in modules for n in lengths)
