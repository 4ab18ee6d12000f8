"""Two builds side by side: the stages and programs in which they differ."""

from collections.abc import Iterable, Iterator

import msgspec

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ROLES, ProgramRecord


class ProgramDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is not the same in both builds; keys are None where there is no such program.

    ``program`` is its role, behind its block's name where a stage runs by blocks.
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
        ours, theirs = _programs(a, index), _programs(b, index)
        for role in _in_order([*ours, *theirs]):
            one, other = ours.get(role), theirs.get(role)
            if one != other:
                key_a, key_b = one.key if one else None, other.key if other else None
                yield ProgramDifference(
                    stage=index, program=role, key_a=key_a, key_b=key_b, traced=key_a != key_b
                )


def _programs(manifest: Manifest, stage: int) -> dict[str, ProgramRecord]:
    return dict(manifest.stages[stage].all_programs) if stage < len(manifest.stages) else {}


def _in_order(names: Iterable[str]) -> list[str]:
    """Return the names of programs, each once, by block and then in the order of use."""
    each = {name: name.rpartition(" ") for name in names}
    blocks = {block: i for i, block in enumerate(dict.fromkeys(b for b, _, _ in each.values()))}
    roles = {str(role): i for i, role in enumerate(ROLES)}
    return sorted(each, key=lambda name: (blocks[each[name][0]], roles[each[name][2]]))
