"""The parts of a build that have programs, in the order in which a microbatch goes through them.

A part is a whole stage, or one block of a stage whose other modules run eagerly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ROLES, ProgramRecord
from pp_precompile.contract.stage import BlockRecord, StageRecord


@dataclass(frozen=True)
class Part:
    """A stage, or one of its blocks, with its place in the build."""

    stage: int
    record: StageRecord | BlockRecord

    @property
    def block(self) -> str | None:
        """FQN of the block; None for a whole stage."""
        return self.record.name if isinstance(self.record, BlockRecord) else None

    @property
    def title(self) -> str:
        """What messages call it."""
        stage = f"stage {self.stage}"
        return stage if self.block is None else f"{self.block} of {stage}"

    def named(self, what: str) -> str:
        """Name one of its programs or values among those of its stage."""
        return what if self.block is None else f"{self.block} {what}"

    def at(self, program: str | None = None, field: str | None = None) -> Where:
        """Return a place in this part; without a program, a field is named with its block."""
        if program is None:
            return Where(stage=self.stage, field=None if field is None else self.named(field))
        return Where(stage=self.stage, program=self.named(program), field=field)


def parts_of(stage: StageRecord) -> tuple[Part, ...]:
    """Return the parts of one stage."""
    return tuple(Part(stage.index, unit) for unit in stage.units)


def parts(manifest: Manifest) -> Iterator[Part]:
    """Yield all parts of a build without variants."""
    for stage in manifest.stages:
        yield from parts_of(stage)


def links(manifest: Manifest) -> Iterator[tuple[Part, Part]]:
    """Yield each pair of parts of which the second takes just what the first returns.

    Between two blocks nothing happens if they are neighbours among the modules of their stages.
    """
    previous: Part | None = None
    for stage in manifest.stages:
        if stage.blocks is None:
            part = Part(stage.index, stage)
            if previous is not None:
                yield previous, part
            previous = part
            continue
        blocks = {block.name: block for block in stage.blocks}
        for module in stage.modules:
            part_or_none = Part(stage.index, blocks[module]) if module in blocks else None
            if previous is not None and part_or_none is not None:
                yield previous, part_or_none
            previous = part_or_none


def holds(stage: StageRecord, role: str) -> bool:
    """Tell whether every part of ``stage`` has a program for ``role``."""
    return all(role in unit.programs for unit in stage.units)


def grouped_programs(stage: StageRecord) -> list[tuple[str, ProgramRecord]]:
    """Return the programs of ``stage`` by name, those of blocks that follow each other once.

    Blocks with the same programs are called ``layers.1 to layers.4 forward``.
    """
    if stage.blocks is None:
        return list(stage.programs.items())
    runs: list[list[BlockRecord]] = []
    for block in stage.blocks:
        if runs and _keys(runs[-1][0]) == _keys(block):
            runs[-1].append(block)
        else:
            runs.append([block])
    return [
        (f"{_run_name(run)} {role}", program)
        for run in runs
        for role in ROLES
        if (program := run[0].programs.get(role)) is not None
    ]


def _keys(block: BlockRecord) -> dict[str, str]:
    return {role: program.key for role, program in block.programs.items()}


def _run_name(run: Sequence[BlockRecord]) -> str:
    return run[0].name if len(run) == 1 else f"{run[0].name} to {run[-1].name}"
