"""What one program of a stage hands to another: described alike by both, made and taken.

=====================  ==========================  =============================================
kind                   made by                     taken by
=====================  ==========================  =============================================
``saved``              forward                     backward, or both its parts between them
``deferred``           backward_input              backward_weight
``unsharded``          unshard                     forward, loss and all of backward between them
``unsharded_gradient`` backward, or its parts;     reduce_grad
                       loss
=====================  ==========================  =============================================
"""

from collections.abc import Iterator
from typing import NamedTuple

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import Kind, ProgramRecord, Role
from pp_precompile.contract.stage import Unit
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.graph import tensors
from pp_precompile.graph.finding import Finding
from pp_precompile.graph.parts import Part, parts
from pp_precompile.graph.roles import backward_ways

_PARTS: tuple[Role, ...] = ("backward_input", "backward_weight")


class _Handover(NamedTuple):
    """All values of one kind between some programs of a stage and others."""

    kind: Kind
    makers: tuple[Role, ...]
    takers: tuple[Role, ...]


def check_handover(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC503 for each value that is made or taken only, or that programs describe unlike."""
    for part in parts(manifest):
        stage = part.record
        found = (item for handover in _handovers(stage) for item in _check(part, handover))
        # What both ways of a backward have a part in is looked at twice.
        yield from dict.fromkeys(found)
        for name, alias in _dangling(stage.programs["forward"]):
            where = part.at("forward", f"saved {name}")
            yield _finding(
                part, where, "an input that forward takes, or a value that it saves", alias
            )


def _handovers(stage: Unit) -> Iterator[_Handover]:
    ways = backward_ways(stage)
    for way in ways:
        yield _Handover("saved", ("forward",), way)
    yield _Handover("deferred", _PARTS[:1], _PARTS[1:])
    yield _Handover("unsharded", ("unshard",), ("forward", "loss", "backward", *_PARTS))
    for way in ways or ((),):
        yield _Handover("unsharded_gradient", (*way, "loss"), ("reduce_grad",))


def _check(part: Part, handover: _Handover) -> Iterator[Finding]:
    made = list(_values(part.record, handover, outputs=True))
    taken = list(_values(part.record, handover, outputs=False))
    first = {name: tensor for _, name, tensor in reversed(made)}
    for role, name, tensor in (*made, *taken):
        if name not in first or not tensors.same(first[name], tensor):
            where = part.at(role, f"{handover.kind} {name}")
            yield _finding(part, where, tensors.named_text(first, name), tensors.text(tensor))
    untaken = first.keys() - {name for _, name, _ in taken}
    for name in sorted(untaken):
        taker = handover.takers[0]
        where = part.at(taker, f"{handover.kind} {name}")
        yield _finding(part, where, tensors.text(first[name]), "no such value")


def _values(
    stage: Unit, handover: _Handover, *, outputs: bool
) -> Iterator[tuple[Role, str, TensorSpec | None]]:
    """Yield each value with the program that makes it (``outputs``) or takes it."""
    for role in handover.makers if outputs else handover.takers:
        program = stage.programs.get(role)
        if program is not None:
            values = tensors.by_name(program, handover.kind, outputs=outputs)
            yield from ((role, name, tensor) for name, tensor in values.items())


def _dangling(forward: ProgramRecord) -> Iterator[tuple[str, str]]:
    known = {f"{value.kind}:{value.name}" for value in forward.inputs}
    known |= {f"saved:{v.name}" for v in forward.outputs if v.kind == "saved" and v.alias is None}
    for value in forward.outputs:
        if value.alias is not None and (value.kind != "saved" or value.alias not in known):
            yield value.name, value.alias


def _finding(part: Part, where: Where, expected: str, found: str) -> Finding:
    kind, name = (where.field or "").split(" ", 1)
    return Finding(
        code="PPC503",
        message=f"programs of {part.title} disagree on {kind} value {name}",
        where=where,
        expected=expected,
        found=found,
    )
