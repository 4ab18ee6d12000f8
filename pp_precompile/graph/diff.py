"""Two builds side by side: the stages and programs in which they differ."""

from collections.abc import Iterator

import msgspec

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ROLES, ProgramRecord


class ProgramDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is not the same in both builds; keys are None where there is no such program.

    ``traced`` tells whether the traced graphs or what steers the compiler differ; else only the
    compiled bytes, or what the inputs and outputs are called, do.
    """

    stage: int
    program: str
    key_a: str | None
    key_b: str | None
    traced: bool


def program_differences(a: Manifest, b: Manifest) -> Iterator[ProgramDifference]:
    """Yield every program of either build that the other lacks or has unlike, by stage and role."""
    for index in range(max(len(a.stages), len(b.stages))):
        for role in ROLES:
            one, other = _program(a, index, role), _program(b, index, role)
            if one != other:
                key_a, key_b = one.key if one else None, other.key if other else None
                yield ProgramDifference(
                    stage=index, program=role, key_a=key_a, key_b=key_b, traced=key_a != key_b
                )


def _program(manifest: Manifest, stage: int, role: str) -> ProgramRecord | None:
    if stage >= len(manifest.stages):
        return None
    return manifest.stages[stage].programs.get(role)
