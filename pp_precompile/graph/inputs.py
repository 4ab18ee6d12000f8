"""The set of keyword inputs is the same on all stages, and the one that the job passes.

An optional input that was absent when a stage was traced changes its program; the schedule gives
every stage the same keywords.
"""

from collections.abc import Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph import tensors
from pp_precompile.graph.finding import Finding


def check_keywords(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC508 for each stage whose keyword inputs are not those of the first stage."""
    first = _keywords(manifest.stages[0])
    for stage in manifest.stages[1:]:
        found = _keywords(stage)
        if found != first:
            yield Finding(
                code="PPC508",
                message=f"stage {stage.index} takes other keyword inputs than stage 0",
                where=Where(stage=stage.index, field="keywords"),
                expected=first,
                found=found,
                hint="build all stages with the inputs that training passes",
            )


def check_keywords_asked(manifest: Manifest, asked: frozenset[str]) -> Iterator[Finding]:
    """Yield PPC104 for each stage whose keyword inputs are not those that the job passes."""
    for stage in manifest.stages:
        stored = frozenset(item.name for item in stage.keywords)
        if stored != asked:
            yield Finding(
                code="PPC104",
                message=f"stage {stage.index} was built with other inputs than the job passes",
                where=Where(stage=stage.index, field="keywords"),
                expected=", ".join(sorted(asked)) or "none",
                found=", ".join(sorted(stored)) or "none",
                hint="build with the inputs that training passes",
            )


def _keywords(stage: StageRecord) -> str:
    items = sorted((item.name, tensors.text(item.tensor)) for item in stage.keywords)
    return "; ".join(f"{name}: {text}" for name, text in items) or "none"
