"""What ``validate`` says of a build: a verdict for each stage, and for the build as a whole."""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from pp_precompile.cli.output import print_table, size, table
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ROLES, ProgramRecord
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.finding import Finding, errors
from pp_precompile.graph.parts import grouped_programs

Verdict = Literal["fits", "refused"]


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stage; ``codes`` are those of the findings that name it. Sizes are in bytes."""

    stage: int
    pp_rank: int
    modules: tuple[str, ...]
    programs: tuple[str, ...]
    bytes: int
    saved_bytes: int
    verdict: Verdict
    codes: tuple[str, ...]


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """One build; ``stages`` is empty if its manifest cannot be relied on."""

    build: Digest
    schedule: str
    mesh: str
    ranks: int
    fits: bool
    stages: list[StageReport]
    findings: list[Finding]


def report(manifest: Manifest, findings: Sequence[Finding], stages: Collection[int]) -> BuildReport:
    """Return the verdicts on the chosen ``stages`` and on the whole build."""
    return BuildReport(
        build=manifest.build_id,
        schedule=manifest.schedule.name,
        mesh=str(manifest.mesh),
        ranks=manifest.mesh.world_size,
        fits=not errors(findings),
        stages=[
            _stage(stage, manifest.schedule.owner(stage.index), findings)
            for stage in manifest.stages
            if stage.index in stages
        ],
        findings=list(findings),
    )


def damaged(build: Digest, finding: Finding) -> BuildReport:
    """Return the report on a build whose manifest cannot be read."""
    return BuildReport(
        build=build, schedule="", mesh="", ranks=0, fits=False, stages=[], findings=[finding]
    )


def _stage(stage: StageRecord, pp_rank: int, findings: Sequence[Finding]) -> StageReport:
    own = [finding for finding in findings if finding.where.stage == stage.index]
    return StageReport(
        stage=stage.index,
        pp_rank=pp_rank,
        modules=stage.modules,
        programs=_programs(stage),
        bytes=sum(program.blob.size for program in _distinct(stage)),
        saved_bytes=stage.saved_bytes,
        verdict="refused" if errors(own) else "fits",
        codes=tuple(sorted({finding.code for finding in own})),
    )


def _programs(stage: StageRecord) -> tuple[str, ...]:
    if stage.blocks is not None:
        return tuple(name for name, _ in grouped_programs(stage))
    return tuple(role for role in ROLES if role in stage.programs)


def _distinct(stage: StageRecord) -> Iterable[ProgramRecord]:
    """Return the programs of a stage, those that its blocks share once."""
    return {
        (program.key, program.blob.digest): program for _, program in stage.all_programs
    }.values()


def print_verdicts(build: BuildReport) -> None:
    """Print the table of one build."""
    title = f"build {build.build}: {build.schedule or 'damaged'}, {build.mesh}"
    out = table(
        "stage", "pp rank", "modules", "programs", "bytes", "saved bytes", "verdict", title=title
    )
    for stage in build.stages:
        out.add_row(
            str(stage.stage),
            str(stage.pp_rank),
            " ".join(stage.modules),
            ", ".join(stage.programs),
            size(stage.bytes),
            size(stage.saved_bytes),
            " ".join([stage.verdict, *stage.codes]),
        )
    whole = [finding for finding in build.findings if finding.where.stage is None]
    codes = sorted({finding.code for finding in whole})
    out.add_section()
    out.add_row(
        "build", "", "", "", "", "", " ".join(["fits" if build.fits else "refused", *codes])
    )
    print_table(out)
