"""What must agree inside one manifest before anyone may rely on it.

Only what later code takes for granted is checked here, so that it never meets a missing index or
an unknown name. Whether a build makes sense as a pipeline, and fits a job, is for ``graph``.
"""

import itertools
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.integers import LARGEST
from pp_precompile.contract.key import build_id
from pp_precompile.contract.limits import MAX_ACTIONS
from pp_precompile.contract.mesh import FLATTENED
from pp_precompile.contract.program import ROLES, ProgramRecord
from pp_precompile.contract.schedule import parse_actions
from pp_precompile.contract.stage import StageRecord, Unit
from pp_precompile.contract.tensor import ITEM_BYTES, TensorSpec

if TYPE_CHECKING:
    from pp_precompile.contract.manifest import Manifest


def contradictions(manifest: "Manifest") -> Iterator[str]:
    """Yield, as text, every way in which ``manifest`` contradicts itself."""
    yield from _identity(manifest)
    yield from _mesh(manifest)
    yield from _stages(manifest)
    yield from _schedule(manifest)
    yield from _blobs(manifest)
    yield from _variants(manifest)
    for stage in _stages_of_all(manifest):
        for place, tensor in _tensors(stage):
            yield from _tensor(tensor, f"stage {stage.index}, {place}")


def _identity(manifest: "Manifest") -> Iterator[str]:
    if manifest.build_id != build_id(manifest.factors):
        yield "build_id is not the digest of the factors"


def _mesh(manifest: "Manifest") -> Iterator[str]:
    mesh = manifest.mesh
    if len(mesh.dims) != len(mesh.sizes):
        yield f"mesh has {len(mesh.dims)} dimensions and {len(mesh.sizes)} sizes"
    elif len(set(mesh.dims)) != len(mesh.dims):
        yield f"mesh names a dimension twice: {mesh}"
    elif len(manifest.schedule.stages_of_rank) != mesh.size("pp"):
        ranks = len(manifest.schedule.stages_of_rank)
        yield f"the schedule has {ranks} pipeline ranks, the mesh {mesh.size('pp')}"
    elif mesh.world_size > LARGEST:
        yield f"the mesh has more than {LARGEST} ranks"
    elif "pp" in mesh.dims[1:]:
        yield f"pp is not the outermost dimension of the mesh: {mesh}"
    elif prod(map(mesh.size, FLATTENED["efsdp"])) % mesh.experts:
        yield f"{mesh.experts} ranks of ep do not divide those of {', '.join(FLATTENED['efsdp'])}"


def _variants(manifest: "Manifest") -> Iterator[str]:
    if len(manifest.mesh.dims) != len(manifest.mesh.sizes):
        return
    seen = {0}
    for variant in manifest.variants:
        if not _ascending_below(variant.columns, manifest.mesh.columns) or not variant.columns:
            yield f"a variant for columns {list(variant.columns)} of {manifest.mesh.columns}"
        twice = sorted(seen & set(variant.columns))
        if twice:
            yield f"columns {twice} of the mesh have two variants"
        seen |= set(variant.columns)
        if len(variant.stages) != len(manifest.stages):
            yield f"a variant of {len(variant.stages)} stages, the build has {len(manifest.stages)}"


def _stages_of_all(manifest: "Manifest") -> list[StageRecord]:
    return [stage for view in manifest.views() for stage in view.stages]


def _stages(manifest: "Manifest") -> Iterator[str]:
    if not manifest.stages:
        yield "the build has no stage"
    for view in manifest.views():
        if [stage.index for stage in view.stages] != list(range(len(view.stages))):
            yield "stage indices are not 0, 1, 2, …"
    for stage in _stages_of_all(manifest):
        yield from _units(stage)


def _units(stage: StageRecord) -> Iterator[str]:
    where = f"stage {stage.index}"
    if stage.blocks is not None and stage.programs:
        yield f"{where} has programs beside those of its blocks"
    names = [block.name for block in stage.blocks or ()]
    if len(set(names)) != len(names):
        yield f"{where} names a block twice"
    for unit in stage.units:
        what = where if isinstance(unit, StageRecord) else f"{where}, {unit.name}"
        unknown = sorted(set(unit.programs) - set(ROLES))
        if unknown:
            yield f"{what} has programs of unknown role {unknown}"
        if "forward" not in unit.programs:
            yield f"{what} has no forward program"


def _schedule(manifest: "Manifest") -> Iterator[str]:
    schedule = manifest.schedule
    placed = sorted(index for stages in schedule.stages_of_rank for index in stages)
    if placed != list(range(len(manifest.stages))):
        yield f"ranks hold stages {placed}, the build has {len(manifest.stages)}"
    if len(schedule.actions) != len(schedule.stages_of_rank):
        ranks = len(schedule.stages_of_rank)
        yield f"actions for {len(schedule.actions)} pipeline ranks, stages for {ranks}"
    count = sum(map(len, schedule.actions))
    if count > MAX_ACTIONS:
        yield f"a schedule of {count} actions, over {MAX_ACTIONS}"
        return
    for rank, actions in enumerate(schedule.actions):
        for position, text in enumerate(actions):
            try:
                parse_actions(text)
            except ValueError as error:
                yield f"pipeline rank {rank}, action {position}: {error}"


def _blobs(manifest: "Manifest") -> Iterator[str]:
    sizes: dict[Digest, int] = {}
    for stage in _stages_of_all(manifest):
        for _, program in stage.all_programs:
            blob = program.blob
            if sizes.setdefault(blob.digest, blob.size) != blob.size:
                yield f"blob {blob.digest} has sizes {sizes[blob.digest]} and {blob.size}"


def _tensors(stage: StageRecord) -> Iterator[tuple[str, TensorSpec]]:
    """Yield every tensor of a stage, and of its blocks, with the place where it stands."""
    yield from _described(stage, "")
    for block in stage.blocks or ():
        yield from _described(block, f"{block.name}, ")
    for name, program in stage.all_programs:
        yield from _values(program, name)


def _described(unit: Unit, prefix: str) -> Iterator[tuple[str, TensorSpec]]:
    for part in ("arguments", "keywords", "parameters", "buffers"):
        for named in getattr(unit, part):
            yield f"{prefix}{part}, {named.name}", named.tensor
    for position, tensor in enumerate(unit.outputs):
        yield f"{prefix}outputs, {position}", tensor


def _values(program: ProgramRecord, role: str) -> Iterator[tuple[str, TensorSpec]]:
    for value in (*program.inputs, *program.outputs):
        if value.tensor is not None:
            yield f"{role}, {value.kind} {value.name}", value.tensor


def _tensor(tensor: TensorSpec, place: str) -> Iterator[str]:
    if tensor.dtype not in ITEM_BYTES:
        yield f"{place}: unknown dtype {tensor.dtype!r}"
    if len(tensor.shape) != len(tensor.stride):
        yield f"{place}: {len(tensor.shape)} sizes, {len(tensor.stride)} strides"
    if not _ascending_below(tensor.dynamic, len(tensor.shape)):
        yield f"{place}: dynamic dimensions {list(tensor.dynamic)} of {len(tensor.shape)}"
    if prod(tensor.shape) * ITEM_BYTES.get(tensor.dtype, 1) > LARGEST:
        yield f"{place}: more than {LARGEST} bytes"
    layout = tensor.layout
    if layout is not None and len(layout.mesh) != len(layout.placements):
        yield f"{place}: {len(layout.mesh)} mesh dimensions, {len(layout.placements)} placements"


def _ascending_below(numbers: tuple[int, ...], limit: int) -> bool:
    return all(one < other for one, other in itertools.pairwise((*numbers, limit)))
