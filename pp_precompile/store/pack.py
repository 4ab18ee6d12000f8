"""One build as one file, for a container image, a wheel or a colleague: a plain tar archive.

Members are the build's files by their names in a store, without times or owners, signatures and
manifest first: one build gives one sequence of bytes. Unpacking believes nothing. It takes no
archive but such a one, knows from the manifest what has to follow, and writes nothing before the
manifest was checked. Readers for tar in general would follow links, long names and sparse files,
none of which belongs here; so this module reads the headers itself.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.contract.manifest import MAX_MANIFEST_BYTES, Manifest
from pp_precompile.contract.signature import MAX_SIGNATURES_BYTES, Signature, Signatures
from pp_precompile.store import atomic
from pp_precompile.store.failures import reason, unwritable
from pp_precompile.store.shelf import BLOBS, BUILDS, SIGNATURES, Kind
from pp_precompile.store.signatures import Received, Trust, decode_signatures
from pp_precompile.store.store import Store

_BLOCK = 512
_RECORD = 20 * _BLOCK
_END = bytes(2 * _BLOCK)
"""What follows the last member, filled up with zeros to a multiple of a record."""

_NAME_BYTES = slice(0, 100)
_SIZE_DIGITS = slice(124, 135)
"""Where a header has a member's name and size."""


def pack(store: Store, build: Digest, path: Path) -> int:
    """Write ``build`` to ``path`` and return the number of bytes.

    Raises:
        PrecompileError: what reading the store raises; PPC202 if ``path`` cannot be written. A
            file that was there before is kept then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    members = _members(store, build)
    try:
        with temporary.open("wb") as file:
            for name, data in members:
                file.write(_header(name, len(data)))
                file.write(data)
                file.write(bytes(-len(data) % _BLOCK))
            file.write(_END)
            file.write(bytes(-file.tell() % _RECORD))
            file.flush()
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
        CorruptError: PPC213 if it is no packed build; PPC204, PPC205 or PPC206 if a part is
            damaged. The store then has no new build.
        UntrustedError: PPC209 if ``store`` trusts certain keys, and none of them signed it; nothing
            was written then.
        StoreError: PPC201 if ``path`` cannot be read, PPC202 if the store cannot be written.
    """
    with _opened(path) as archive:
        manifest, signatures = _head(archive, store.trust)
        for digest, ref in sorted(manifest.blobs().items()):
            archive.expect(_name(BLOBS, digest), ref.size)
            data = archive.data(ref.size)
            if digest_bytes(data) != digest:
                raise archive.damaged(f"blob {digest}", "bytes with another sha256")
            store.blobs.put(data)
        archive.end()
    store.programs.adopt(manifest.entries(), verify=True)
    store.builds.publish(manifest, Received(signatures=signatures, trust=store.trust))
    return manifest


def _members(store: Store, build: Digest) -> Iterator[tuple[str, bytes]]:
    # As they are now: this host's copies of manifest and signatures may not be of one age.
    builds = store.past_cache().builds
    manifest, signatures = builds.read(build), builds.signatures.of(build)
    refs = manifest.blobs()
    if signatures:
        yield _name(SIGNATURES, build), encode(Signatures(signatures=signatures))
    yield _name(BUILDS, build), manifest.to_bytes()
    for digest in sorted(refs):
        yield _name(BLOBS, digest), store.blobs.get(refs[digest])


def _name(kind: Kind, digest: Digest) -> str:
    return "/".join(kind.parts(digest))


def _header(name: str, size: int) -> bytes:
    """Return the header of a regular file in POSIX's form of tar, of user 0 and of 1970."""
    mode_and_owner = b"0000644\0" + 2 * b"0000000\0"
    before = name.encode().ljust(100, b"\0") + mode_and_owner + b"%011o\0%011o\0" % (size, 0)
    after = (b"0" + bytes(100) + b"ustar\0" + b"00").ljust(_BLOCK - len(before) - 8, b"\0")
    total = sum(before) + sum(after) + 8 * ord(" ")
    return before + b"%06o\0 " % total + after


def _head(archive: "_Archive", trust: Trust | None) -> tuple[Manifest, tuple[Signature, ...]]:
    """Return the checked manifest and its signatures, which come before everything else."""
    signatures: tuple[Signature, ...] = ()
    kind, build, size = archive.member()
    if kind is SIGNATURES:
        signed = build
        data = archive.data(archive.at_most(size, MAX_SIGNATURES_BYTES))
        signatures = decode_signatures(data, signed).signatures
        kind, build, size = archive.member()
        if build != signed:
            raise archive.damaged(f"build {signed}", f"build {build}")
    if kind is not BUILDS:
        raise archive.damaged("signatures or a manifest first", f"something of {kind.folder}/")
    data = archive.data(archive.at_most(size, MAX_MANIFEST_BYTES))
    if trust is not None:
        trust.check(build, data, signatures)
    manifest = Manifest.from_bytes(data, what="the packed manifest")
    if manifest.build_id != build:
        raise archive.damaged(f"build {build}", f"build {manifest.build_id}")
    return manifest, signatures


class _Archive:
    """Reads members one after the other; headers must be exactly what :func:`pack` writes."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._position = 0

    def member(self) -> tuple[Kind, Digest, int]:
        """Return kind, digest by name, and size in bytes of the next member."""
        block = self._read(_BLOCK)
        name, size = "", -1
        with contextlib.suppress(ValueError):
            name = block[_NAME_BYTES].rstrip(b"\0").decode("ascii")
            size = int(block[_SIZE_DIGITS], 8)
        for kind in (SIGNATURES, BUILDS, BLOBS):
            digest = kind.digest(tuple(name.split("/")))
            if digest is not None and size >= 0 and block == _header(name, size):
                return kind, digest, size
        raise self.damaged("files with the names they have in a store", repr(name))

    def expect(self, name: str, size: int) -> None:
        """Read the header of a member of which everything is known."""
        block = self._read(_BLOCK)
        if block != _header(name, size):
            found = block[_NAME_BYTES].rstrip(b"\0") or b"the end"
            raise self.damaged(f"{name} with {size} bytes", repr(found.decode("latin-1")))

    def data(self, size: int) -> bytes:
        """Return the bytes of a member."""
        data = self._read(size)
        if any(self._read(-size % _BLOCK)):
            raise self.damaged("zeros behind a member", "something else")
        return data

    def end(self) -> None:
        """Make sure that nothing follows."""
        rest = len(_END) + -(self._position + len(_END)) % _RECORD
        if any(self._read(rest)) or self._some(1):
            raise self.damaged("nothing after the last blob", "something more")

    def at_most(self, size: int, limit: int) -> int:
        """Return ``size`` if it is within ``limit``."""
        if size > limit:
            raise self.damaged(f"at most {limit} bytes", f"{size} bytes")
        return size

    def damaged(self, expected: str, found: str) -> CorruptError:
        """Return the error for an archive that is not what it should be."""
        return CorruptError(
            "PPC213",
            f"{self._path} is not a whole packed build",
            expected=expected,
            found=found,
            hint="pack it again with 'pp-precompile pack', and copy it whole",
        )

    def _read(self, size: int) -> bytes:
        data = self._some(size)
        self._position += size
        if len(data) != size:
            raise self.damaged(f"{size} more bytes", f"{len(data)}: it was cut off")
        return data

    def _some(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            raise _unreadable(self._path, error) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_Archive]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error
    with file:
        yield _Archive(path, file)


def _unreadable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        "PPC201",
        f"cannot read {path}",
        expected="a packed build",
        found=reason(error),
        hint="check the path and its mode",
        exit_code=2,
    )
