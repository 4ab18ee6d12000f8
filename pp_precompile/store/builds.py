"""Builds: manifests under their build id, written last, so that a build is there whole or not.

Reads and writes manifests; whether one fits a job is for ``graph``.
"""

from pathlib import Path

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.errors import (
    CorruptError,
    MissingBuildError,
    StoreError,
    UntrustedError,
)
from pp_precompile.contract.manifest import MAX_MANIFEST_BYTES, Manifest
from pp_precompile.store.blobs import Blobs, missing_blob
from pp_precompile.store.remote import Remote
from pp_precompile.store.shelf import BUILDS, Check, Item, Shelf
from pp_precompile.store.signatures import Received, SignatureShelf, Trust

_LISTED = 10
"""Most builds that an error lists."""

_NONE_RECEIVED = Received()


class Builds:
    """The builds of one store; with ``trust``, only those that a trusted key signed are read."""

    def __init__(
        self, root: Path, blobs: Blobs, remote: Remote | None = None, trust: Trust | None = None
    ) -> None:
        self._shelf = Shelf(root, BUILDS, remote)
        self._blobs = blobs
        self._trust = trust
        self.signatures = SignatureShelf(root, remote)

    def publish(self, manifest: Manifest, received: Received = _NONE_RECEIVED) -> None:
        """Make a build visible, replacing one for the same job; signatures of that one go.

        Args:
            manifest: the build.
            received: signatures that it came with. They are written before the manifest, so that
                whoever trusts their keys never finds the build unsigned.

        Raises:
            StoreError: PPC203 if a blob of the build is not there, PPC202 if it cannot be written.
            CorruptError: PPC205 or PPC206 if the manifest would be refused at reading.
        """
        data = manifest.to_bytes()
        Manifest.from_bytes(data, what=f"the manifest to publish, {manifest.build_id},")
        for ref in manifest.blobs().values():
            if not self._blobs.has(ref):
                raise missing_blob(ref, self._blobs.place(ref.digest))
        self._sign(manifest.build_id, data, received)
        self._shelf.write(manifest.build_id, data)

    def _sign(self, build_id: Digest, data: bytes, received: Received) -> None:
        """Keep what signs the bytes that are to be published, and nothing else."""
        there = build_id in self.signatures
        if there and self._other(build_id, data):
            if not received.signatures:
                self.signatures.remove(build_id)
            there = False
        if received.signatures:
            others = self.signatures.there(build_id) if there else ()
            self.signatures.put(build_id, received.beside(others, digest_bytes(data)))

    def read(self, build_id: Digest) -> Manifest:
        """Return the checked manifest of a build.

        Raises:
            MissingBuildError: PPC101 if there is no such build.
            UntrustedError: PPC209 if no trusted key signed it; nothing of it is decoded then.
            CorruptError: PPC205 or PPC206 if it is damaged, of another format, or not the build
                that its file name says.
            StoreError: PPC201 or PPC208 if it must not be read.
        """
        read: list[Manifest] = []
        self._read(build_id, lambda data: read.append(self._decode(build_id, data)))
        return read[-1]

    def raw(self, build_id: Digest) -> bytes:
        """Return the bytes of a build's manifest, checked as :meth:`read` does."""
        return self._read(build_id, lambda data: self._decode(build_id, data))

    def _read(self, build_id: Digest, check: Check) -> bytes:
        data = self._shelf.read(build_id, limit=MAX_MANIFEST_BYTES, check=check)
        if data is None:
            raise self._missing(build_id)
        return data

    def _decode(self, build_id: Digest, data: bytes) -> Manifest:
        if self._trust is not None:
            self._check_signed(self._trust, build_id, data)
        what = f"manifest {build_id}"
        manifest = Manifest.from_bytes(data, what=what)
        if manifest.build_id != build_id:
            raise CorruptError(
                "PPC205",
                f"{what} is not what its file name says",
                expected=f"build {build_id}",
                found=f"build {manifest.build_id} in {self.place(build_id)}",
                hint="it was renamed or swapped: delete that file and build again",
            )
        return manifest

    def _check_signed(self, trust: Trust, build_id: Digest, data: bytes) -> None:
        try:
            trust.check(build_id, data, self.signatures.of(build_id))
        except UntrustedError as error:
            if self._shelf.remote is None:
                raise
            # This host's copy of the signatures may be older than that of the manifest.
            try:
                signatures = self.signatures.of(build_id, cached=False)
            except StoreError:
                raise error from None
            trust.check(build_id, data, signatures)

    def _other(self, build_id: Digest, data: bytes) -> bool:
        """Tell whether the manifest that is there has other bytes, whatever they are."""
        read: list[bytes] = []
        self._shelf.read(build_id, limit=MAX_MANIFEST_BYTES, check=read.append, cached=False)
        return read[-1:] != [data]

    def ids(self) -> list[Digest]:
        """Return the id of every build, in order of the digits.

        Raises:
            StoreError: PPC201 if the folder cannot be listed.
        """
        return list(self._shelf)

    def resolve(self, prefix: str) -> Digest:
        """Return the one build whose id starts with ``prefix``.

        Raises:
            StoreError: PPC207 if there is none, or more than one; it lists the candidates.
        """
        ids = self.ids()
        matches = [build for build in ids if build.startswith(prefix)]
        if len(matches) == 1:
            return matches[0]
        listed = "".join(f"\n    {build}" for build in (matches or ids)[:_LISTED])
        if matches:
            message = f"{len(matches)} builds have an id that starts with {prefix[:64]!r}"
        else:
            message = f"no build has an id that starts with {prefix[:64]!r}"
        raise StoreError(
            "PPC207",
            message,
            expected="the first digits of one build's id",
            found=f"{len(ids)} builds in {self._shelf.folder}{':' if listed else ''}{listed}",
            hint="give more digits" if matches else "'pp-precompile ls STORE' lists the builds",
            exit_code=2,
        )

    def path(self, build_id: Digest) -> Path:
        """Return where a build's manifest lies on this host, for tools."""
        return self._shelf.path(build_id)

    def place(self, build_id: Digest) -> str:
        """Return where a build's manifest lies, for messages: a path or a URL."""
        return self._shelf.place(build_id)

    def items(self) -> dict[Digest, Item]:
        """Return every build's id with its manifest's size and last use.

        Raises:
            StoreError: PPC201 if the folder cannot be listed.
        """
        return self._shelf.items()

    def use(self, build_id: Digest) -> None:
        """Note that a job loads the build, where this user may; see :meth:`Shelf.use`."""
        self._shelf.use(build_id)

    def remove(self, build_id: Digest) -> None:
        """Delete a build's manifest and signatures, not its blobs; no error if there is none.

        Raises:
            StoreError: PPC202.
        """
        self._shelf.remove(build_id)
        self.signatures.remove(build_id)

    def _missing(self, build_id: Digest) -> MissingBuildError:
        return MissingBuildError(
            "PPC101",
            "the store has no build for this job",
            expected=f"build {build_id}",
            found=f"{len(self.ids())} other builds in {self._shelf.folder}",
            hint="build it with 'pp-precompile build' and the job's arguments; "
            "'pp-precompile explain' tells what differs from the nearest build",
        )
