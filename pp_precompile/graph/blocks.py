"""Where stages run by blocks: the blocks are their stage's, and see what the stage sees."""

import re
from collections.abc import Iterable, Iterator, Set

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.stage import BlockRecord, StageRecord
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.graph import tensors
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.parts import Part

_LAYER = re.compile(r"layers\.\d{1,9}")
"""What torchtitan's decoders call the modules that are blocks."""


def check_blocks(manifest: Manifest) -> Iterator[Finding]:
    """Yield what does not hold between a stage and its blocks.

    PPC105 for a layer without programs among stages that run by blocks, PPC515 for a block that is
    no module of its stage, PPC506 for state and PPC508 for keyword inputs that a block and its
    stage describe unlike. That neighbours fit is for ``edges.py`` to check, inside and across
    stages; the stage's own boundary is described twice where a block is at the end of it, and then
    compared here (PPC501).
    """
    by_blocks = any(stage.blocks is not None for stage in manifest.stages)
    for stage in manifest.stages:
        if stage.blocks is None:
            if by_blocks:
                yield _finding("PPC105", Part(stage.index, stage), "blocks", "blocks", "none")
            continue
        yield from _modules(stage, stage.blocks)
        yield from _state(stage, stage.blocks)
        for block in stage.blocks:
            yield from _keywords(stage, block)
        yield from _ends(stage, stage.blocks)


def _modules(stage: StageRecord, blocks: tuple[BlockRecord, ...]) -> Iterator[Finding]:
    part = Part(stage.index, stage)
    names = [block.name for block in blocks]
    strangers = [name for name in names if name not in set(stage.modules)]
    if strangers:
        yield _finding(
            "PPC515", part, strangers[0], f"one of {listed(stage.modules)}", listed(strangers)
        )
    known = set(names)
    bare = [name for name in stage.modules if _LAYER.fullmatch(name) and name not in known]
    if bare:
        yield _finding("PPC105", part, bare[0], "a block for every layer", f"none: {listed(bare)}")
    ordered = [name for name in stage.modules if name in known]
    if not strangers and ordered != names:
        yield _finding("PPC513", part, "blocks", listed(ordered), listed(names))


def _state(stage: StageRecord, blocks: tuple[BlockRecord, ...]) -> Iterator[Finding]:
    """A block has just what its stage has below its name."""
    names = {block.name for block in blocks}
    parameters, buffers = _below(stage.parameters, names), _below(stage.buffers, names)
    for block in blocks:
        pairs = (block.parameters, parameters), (block.buffers, buffers)
        for own, of_stage in pairs:
            theirs = of_stage.get(block.name, {})
            for name, (found, expected) in _differing(_named(own), theirs).items():
                yield _finding("PPC506", Part(stage.index, block), name, expected, found)


def _below(items: tuple[NamedTensor, ...], names: Set[str]) -> dict[str, dict[str, TensorSpec]]:
    """Return the tensors whose names begin with one of ``names`` and a dot, by what follows."""
    below: dict[str, dict[str, TensorSpec]] = {}
    lengths = {len(name) for name in names}
    for item in items:
        for n in lengths:
            if item.name[n : n + 1] == "." and item.name[:n] in names:
                below.setdefault(item.name[:n], {})[item.name[n + 1 :]] = item.tensor
    return below


def _keywords(stage: StageRecord, block: BlockRecord) -> Iterator[Finding]:
    """A block takes keyword inputs of its stage, and no others."""
    theirs, own = _named(stage.keywords), _named(block.keywords)
    for name, (found, expected) in _differing(own, theirs).items():
        if name in own:
            yield _finding("PPC508", Part(stage.index, block), name, expected, found)


def _ends(stage: StageRecord, blocks: tuple[BlockRecord, ...]) -> Iterator[Finding]:
    if not blocks or not stage.modules:
        return
    first, last = blocks[0], blocks[-1]
    if stage.modules[0] == first.name:
        expected, found = (_boundary(i.tensor for i in u.arguments) for u in (stage, first))
        if expected != found:
            yield _finding("PPC501", Part(stage.index, first), "arguments", expected, found)
    if stage.modules[-1] == last.name:
        expected, found = _boundary(stage.outputs), _boundary(last.outputs)
        if expected != found:
            yield _finding("PPC501", Part(stage.index, last), "outputs", expected, found)


def _boundary(specs: Iterable[TensorSpec]) -> str:
    return listed([tensors.text(spec) for spec in specs])


def _named(items: tuple[NamedTensor, ...]) -> dict[str, TensorSpec]:
    return {item.name: item.tensor for item in items}


def _differing(
    one: dict[str, TensorSpec], other: dict[str, TensorSpec]
) -> dict[str, tuple[str, str]]:
    """Return, by name, the texts of every tensor that is not the same in all that is said of it."""
    return {
        name: (_text(one.get(name)), _text(other.get(name)))
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    }


def _text(spec: TensorSpec | None) -> str:
    if spec is None:
        return "no such tensor"
    return f"{tensors.text(spec)}{', with a gradient' if spec.requires_grad else ''}"


def _finding(code: str, part: Part, field: str, expected: str, found: str) -> Finding:
    return Finding(
        code=code,
        message=f"{part.title} does not fit its modules"
        if part.block is None
        else f"{part.title} is not the block that its stage describes",
        where=part.at(field=field),
        expected=expected,
        found=found,
    )
