"""Small stand-ins for the blobs of a real build: whole, but with nothing to run inside."""

from collections.abc import Callable, MutableMapping
from typing import TypeVar

import msgspec

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import BlobRef, ProgramBlob, ProgramRecord
from pp_precompile.contract.stage import BlockRecord, StageRecord

T = TypeVar("T", StageRecord, BlockRecord)
Code = Callable[[ProgramRecord], bytes]


def with_fake_blobs(
    manifest: Manifest,
    put: MutableMapping[str, bytes] | Callable[[bytes], BlobRef],
    *,
    code: Code = lambda program: program.key.encode(),
    raw: bool = False,
) -> Manifest:
    """Return ``manifest`` with blobs that ``put`` keeps; equal programs still share one.

    Args:
        manifest: a real build.
        put: a store's ``blobs.put``, or a mapping that gets the bytes by digest.
        code: the bytes of a program.
        raw: store ``code`` as it is, not inside a ``ProgramBlob``.
    """

    def fake(program: ProgramRecord) -> ProgramRecord:
        kernels = {digest_bytes(bytes([n])): b"" for n in range(program.kernels)}
        data = code(program) if raw else encode(ProgramBlob(code=code(program), kernels=kernels))
        return msgspec.structs.replace(program, blob=_keep(put, data))

    def faked(unit: T) -> T:
        programs = {role: fake(program) for role, program in unit.programs.items()}
        return msgspec.structs.replace(unit, programs=programs)

    def of_stage(stage: StageRecord) -> StageRecord:
        blocks = None if stage.blocks is None else tuple(map(faked, stage.blocks))
        return msgspec.structs.replace(faked(stage), blocks=blocks)

    return msgspec.structs.replace(manifest, stages=tuple(map(of_stage, manifest.stages)))


def _keep(put: MutableMapping[str, bytes] | Callable[[bytes], BlobRef], data: bytes) -> BlobRef:
    if callable(put):
        return put(data)
    ref = BlobRef(digest=digest_bytes(data), size=len(data))
    put[ref.digest] = data
    return ref
