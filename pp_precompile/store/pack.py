"""One build as one file, for a container image, a wheel or a colleague: a plain tar archive.

Members are the build's files by their names in a store, the manifest last, without times or
owners: one build gives one sequence of bytes. Unpacking believes nothing: names, sizes and digests
are checked like those of a store.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.encoding import MAX_BYTES, decode, encode
from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.contract.manifest import MAX_MANIFEST_BYTES, Manifest
from pp_precompile.contract.program import MAX_ENTRY_BYTES, ProgramEntry
from pp_precompile.contract.signature import MAX_SIGNATURES_BYTES, Signatures
from pp_precompile.store import atomic
from pp_precompile.store.failures import reason, unwritable
from pp_precompile.store.shelf import BLOBS, BUILDS, PROGRAMS, SIGNATURES, Kind
from pp_precompile.store.store import Store

_LIMITS = (
    (BLOBS, MAX_BYTES),
    (PROGRAMS, MAX_ENTRY_BYTES),
    (SIGNATURES, MAX_SIGNATURES_BYTES),
    (BUILDS, MAX_MANIFEST_BYTES),
)
"""Every kind of member with its most bytes."""


def pack(store: Store, build: Digest, path: Path) -> int:
    """Write ``build`` to ``path`` and return the number of bytes.

    Raises:
        PrecompileError: what reading the store raises; PPC202 if ``path`` cannot be written. A
            file that was there before is kept then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    members = _members(store, build)
    try:
        with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data in members:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o644
                archive.addfile(member, io.BytesIO(data))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        atomic.sync_folder(path.absolute().parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path.stat().st_size


def unpack(path: Path, store: Store) -> Manifest:
    """Put the build in ``path`` into ``store`` and return its manifest.

    Raises:
        CorruptError: PPC213 if it is no packed build; PPC204 or PPC205 if a part is damaged. The
            store then has no new build.
        UntrustedError: PPC209 if ``store`` trusts certain keys, and none of them signed it.
        StoreError: PPC201 if ``path`` cannot be read, PPC202 if the store cannot be written.
    """
    build: tuple[Digest, bytes] | None = None
    signatures: Signatures | None = None
    entries: list[ProgramEntry] = []
    for kind, digest, data in _read(path):
        if kind is BLOBS:
            if store.blobs.put(data).digest != digest:
                raise _damaged(path, f"blob {digest}", "bytes with another sha256")
        elif kind is PROGRAMS:
            entries.append(decode(data, ProgramEntry, what=f"program entry {digest}"))
        elif kind is SIGNATURES:
            signatures = decode(data, Signatures, what="the packed signatures")
        else:
            build = digest, data
    if build is None:
        raise _damaged(path, "a manifest", "none: the file may have been cut off")
    found = signatures.signatures if signatures else ()
    if store.trust is not None:
        store.trust.check(build[0], build[1], found)
    manifest = Manifest.from_bytes(build[1], what="the packed manifest")
    if manifest.build_id != build[0]:
        raise _damaged(path, f"build {build[0]}", f"build {manifest.build_id}")
    store.builds.publish(manifest)
    refs = manifest.blobs().values()
    for entry in entries:
        if entry.blob in refs:
            store.programs.record(entry)
    if found:
        store.builds.signatures.put(manifest.build_id, found)
    return manifest


def _members(store: Store, build: Digest) -> Iterator[tuple[str, bytes]]:
    manifest = store.builds.read(build)
    refs = manifest.blobs()
    for digest in sorted(refs):
        yield "/".join(BLOBS.parts(digest)), store.blobs.get(refs[digest])
    for key in store.programs:
        entry = store.programs.read(key)
        if entry is not None and entry.blob.digest in refs:
            yield "/".join(PROGRAMS.parts(key)), encode(entry)
    signatures = store.builds.signatures.of(build)
    if signatures:
        yield "/".join(SIGNATURES.parts(build)), encode(Signatures(signatures=signatures))
    yield "/".join(BUILDS.parts(build)), manifest.to_bytes()


def _read(path: Path) -> Iterator[tuple[Kind, Digest, bytes]]:
    """Yield kind, digest by name, and bytes of every member; the manifest must be the last."""
    last: Kind | None = None
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                kind, digest, limit = _kind(path, member)
                if last is BUILDS:
                    raise _damaged(path, "nothing after the manifest", member.name[:200])
                if member.size > limit:
                    raise _damaged(path, f"at most {limit} bytes", f"{member.size} bytes")
                file = archive.extractfile(member)
                data = file.read() if file else b""
                if len(data) != member.size:
                    raise _damaged(path, f"{member.size} bytes", f"{len(data)} bytes")
                last = kind
                yield kind, digest, data
    except (tarfile.TarError, EOFError) as error:
        raise _damaged(path, "a tar archive", str(error)) from error
    except OSError as error:
        raise StoreError(
            "PPC201",
            f"cannot read {path}",
            expected="a packed build",
            found=reason(error),
            hint="check the path and its mode",
            exit_code=2,
        ) from error


def _kind(path: Path, member: tarfile.TarInfo) -> tuple[Kind, Digest, int]:
    if member.isreg():
        for kind, limit in _LIMITS:
            digest = kind.digest(tuple(member.name.split("/")))
            if digest is not None:
                return kind, digest, limit
    raise _damaged(path, "files with the names they have in a store", repr(member.name[:200]))


def _damaged(path: Path, expected: str, found: str) -> CorruptError:
    return CorruptError(
        "PPC213",
        f"{path} is not a whole packed build",
        expected=expected,
        found=found,
        hint="pack it again with 'pp-precompile pack', and copy it whole",
    )
