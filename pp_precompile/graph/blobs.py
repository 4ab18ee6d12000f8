"""Every program's bytes are there, whole, and hold what the manifest says of them."""

from collections.abc import Callable, Collection, Iterator

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import peek
from pp_precompile.contract.errors import PrecompileError, Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import BlobRef, ProgramBlob
from pp_precompile.graph.finding import Finding, from_error

ReadBlob = Callable[[BlobRef], bytes]
"""Returns a blob's bytes, or raises a ``PrecompileError`` (``store.blobs.get`` of a store)."""


def check_blobs(
    manifest: Manifest, read_blob: ReadBlob, stages: Collection[int]
) -> Iterator[Finding]:
    """Yield a finding for each program of ``stages`` whose bytes cannot be relied on.

    The code is that of the reader's error (PPC203 for a missing blob, PPC208 for an unsafe one) or
    PPC204 for bytes that are not what the manifest says. A blob that programs share is read once;
    nothing in it is unpickled.
    """
    kernels: dict[Digest, int] = {}
    for stage in manifest.stages:
        for name, program in stage.all_programs:
            if stage.index not in stages:
                continue
            where = Where(stage=stage.index, program=name)
            if program.blob.digest not in kernels:
                try:
                    kernels[program.blob.digest] = _kernels(read_blob(program.blob), program.blob)
                except PrecompileError as error:
                    yield from_error(error, where)
                    continue
            found = kernels[program.blob.digest]
            if found != program.kernels:
                yield Finding(
                    code="PPC204",
                    message=f"blob {program.blob.digest} does not hold that many kernels",
                    where=where,
                    expected=f"{program.kernels} kernels",
                    found=str(found),
                    hint="delete the build's manifest and build again",
                )


def _kernels(data: bytes, ref: BlobRef) -> int:
    """Return how many kernels the blob carries.

    Raises:
        CorruptError: PPC204 if it is no blob of a program, or not the one referred to.
    """
    what = f"blob {ref.digest}"
    if len(data) != ref.size or digest_bytes(data) != ref.digest:
        raise PrecompileError(
            "PPC204",
            f"{what} is damaged",
            expected=f"{ref.size} bytes with that sha256",
            found=f"{len(data)} bytes with sha256 {digest_bytes(data)}",
            hint="delete it and build again: only what it held is compiled",
        )
    return len(peek(data, ProgramBlob, what=what, code="PPC204").kernels)
