"""Distributed parameters and buffers lie on dimensions of the mesh, in shards of the right size."""

from collections.abc import Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.mesh import FLATTENED, MeshSpec
from pp_precompile.contract.stage import StageRecord, Unit
from pp_precompile.contract.tensor import Layout, TensorSpec
from pp_precompile.graph.finding import Finding


def check_layouts(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC532 for each tensor of a stage whose layout cannot be one on the mesh."""
    for stage in manifest.stages:
        for name, tensor in _tensors(stage):
            fault = tensor.layout and _fault(tensor, tensor.layout, manifest.mesh)
            if fault:
                yield Finding(
                    code="PPC532",
                    message=f"the layout of {name} does not fit the mesh",
                    where=Where(stage=stage.index, field=name),
                    expected=fault,
                    found=f"local {list(tensor.shape)} of {list(tensor.layout.shape)}, "
                    f"{tensor.layout}"
                    if tensor.layout
                    else "",
                )


def _tensors(stage: StageRecord) -> Iterator[tuple[str, TensorSpec]]:
    yield from _described(stage, "")
    for block in stage.blocks or ():
        yield from _described(block, f"{block.name} ")


def _described(unit: Unit, prefix: str) -> Iterator[tuple[str, TensorSpec]]:
    for item in (*unit.parameters, *unit.buffers, *unit.arguments, *unit.keywords):
        yield f"{prefix}{item.name}", item.tensor
    for position, tensor in enumerate(unit.outputs):
        yield f"{prefix}output {position}", tensor


def _fault(tensor: TensorSpec, layout: Layout, mesh: MeshSpec) -> str:
    """Return what would be right, or an empty text if all is."""
    if len(layout.shape) != len(tensor.shape):
        return f"{len(layout.shape)} local dimensions"
    unknown = [name for name in layout.mesh if _size(name, mesh) is None]
    if unknown:
        return f"a dimension of the mesh {mesh} instead of {unknown[0]!r}"
    try:
        cuts = layout.cuts()
    except ValueError as error:
        return f"replicate, shard(D), strided_shard(D, N) or partial(OP), not '{error}'"
    # What one mesh dimension cuts, the next one cuts again.
    possible = [{size} for size in layout.shape]
    for name, dim in cuts:
        if dim >= len(possible):
            return f"a dimension below {len(possible)} instead of {layout}"
        ranks = mesh.size(name)
        possible[dim] = {piece for size in possible[dim] for piece in _pieces(size, ranks)}
    if all(size in sizes for size, sizes in zip(tensor.shape, possible, strict=True)):
        return ""
    return "local sizes " + " x ".join("/".join(map(str, sorted(sizes))) for sizes in possible)


def _pieces(size: int, ranks: int) -> set[int]:
    """Return the sizes of the pieces that ``size`` is cut into: full ones, a rest, empty ones."""
    full = -(-size // ranks)
    if full == 0:
        return {0}
    whole, rest = divmod(size, full)
    pieces = {full}
    if rest:
        pieces.add(rest)
    if whole + bool(rest) < ranks:
        pieces.add(0)
    return pieces


def _size(dim: str, mesh: MeshSpec) -> int | None:
    return mesh.size(dim) if dim in mesh.dims or dim in FLATTENED or dim == "ep" else None
