"""Who signed a build: signatures are kept beside the manifest and checked before it is read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import decode, encode
from pp_precompile.contract.errors import CorruptError, UntrustedError
from pp_precompile.contract.signature import MAX_SIGNATURES_BYTES, Signature, Signatures
from pp_precompile.store.keys import PrivateKey, PublicKey
from pp_precompile.store.remote import Remote
from pp_precompile.store.shelf import SIGNATURES, Item, Shelf


class SignatureShelf:
    """The signatures of one store's builds."""

    def __init__(self, root: Path, remote: Remote | None = None) -> None:
        self._shelf = Shelf(root, SIGNATURES, remote)

    def of(self, build_id: Digest, *, cached: bool = True) -> tuple[Signature, ...]:
        """Return a build's signatures, unchecked; none if there is no file of them.

        Args:
            build_id: the build.
            cached: whether this host's copy of a remote store's file will do.

        Raises:
            CorruptError: PPC205 if the file is not in the stored format.
            StoreError: PPC201 or PPC208 if it must not be read.
        """
        read: list[Signatures] = []
        self._shelf.read(
            build_id,
            limit=MAX_SIGNATURES_BYTES,
            check=lambda data: read.append(decode_signatures(data, build_id)),
            cached=cached,
        )
        return read[-1].signatures if read else ()

    def add(self, build_id: Digest, manifest: bytes, key: PrivateKey) -> Signature:
        """Sign a build's bytes, beside the signatures of other keys, and return the signature.

        Raises:
            StoreError: PPC202.
        """
        signature = key.sign(digest_bytes(manifest))
        others = [one for one in self.of(build_id, cached=False) if one.key != signature.key]
        self._shelf.write(build_id, _encode([*others, signature]))
        return signature

    def put(self, build_id: Digest, signatures: Sequence[Signature]) -> None:
        """Keep these signatures of a build, and no others.

        Raises:
            StoreError: PPC202.
        """
        self._shelf.write(build_id, _encode(signatures))

    def there(self, build_id: Digest) -> tuple[Signature, ...]:
        """Return a build's signatures as they are now; none if the file is damaged."""
        try:
            return self.of(build_id, cached=False)
        except CorruptError:
            return ()

    def remove(self, build_id: Digest) -> None:
        """Delete a build's signatures; it is no error if there are none.

        Raises:
            StoreError: PPC202.
        """
        self._shelf.remove(build_id)

    def items(self) -> dict[Digest, Item]:
        """Return the build of every file of signatures, with the file's size and last use.

        Raises:
            StoreError: PPC201 if the folder cannot be listed.
        """
        return self._shelf.items()

    def __contains__(self, build_id: Digest) -> bool:
        return self._shelf.size(build_id) is not None


@dataclass(frozen=True, kw_only=True)
class Received:
    """Signatures that came with a build from elsewhere, and which of them are to be believed.

    A key signs the same bytes the same way, so where two signatures of one key differ, one of them
    is worthless. Which one cannot be told without that key.
    """

    signatures: tuple[Signature, ...] = ()
    trust: "Trust | None" = None
    """With it, a signature that one of its keys verifies replaces what is there."""
    replace: bool = False
    """Whether all of them replace what is there."""

    def beside(self, there: Sequence[Signature], manifest_id: Digest) -> tuple[Signature, ...]:
        """Return all signatures of the manifest, ``there`` being those that the store has."""
        merged = {one.key: one for one in there}
        verified = {one.key for one in self.signatures if self._verified(one, manifest_id)}
        for one in sorted(self.signatures, key=lambda one: one.key not in verified):
            if one.key not in merged or self.replace or one.key in verified:
                more = {**merged, one.key: one}
                # A file that is too large would be refused with all that are in it.
                if len(_encode(more.values())) <= MAX_SIGNATURES_BYTES:
                    merged = more
        return tuple(merged[key] for key in sorted(merged))

    def _verified(self, signature: Signature, manifest_id: Digest) -> bool:
        keys = self.trust.keys if self.trust else ()
        return signer(keys, manifest_id, [signature]) is not None


@dataclass(frozen=True)
class Trust:
    """The keys of which one must have signed a build."""

    keys: tuple[PublicKey, ...]

    def check(self, build_id: Digest, manifest: bytes, signatures: Sequence[Signature]) -> None:
        """Refuse a build that no trusted key signed; nothing of ``manifest`` is decoded.

        Raises:
            UntrustedError: PPC209.
        """
        if signer(self.keys, digest_bytes(manifest), signatures) is not None:
            return
        known = {key.id for key in self.keys}
        if not signatures:
            found = "no signature"
        elif any(one.key in known for one in signatures):
            found = "a signature of a trusted key that does not fit the manifest's bytes"
        else:
            found = "signatures of " + ", ".join(one.key[:12] for one in signatures)
        raise UntrustedError(
            "PPC209",
            f"build {build_id} is not signed by a trusted key",
            expected="a signature of " + (", ".join(key.id[:12] for key in self.keys) or "no key"),
            found=found,
            hint="find out who wrote it; 'pp-precompile sign STORE --key FILE' signs a build that "
            "you made yourself",
        )


def signer(
    keys: Sequence[PublicKey], manifest_id: Digest, signatures: Sequence[Signature]
) -> PublicKey | None:
    """Return the first of ``keys`` that signed the manifest with that digest; None if none did."""
    for key in keys:
        if any(key.verifies(signature, manifest_id) for signature in signatures):
            return key
    return None


def _encode(signatures: Iterable[Signature]) -> bytes:
    return encode(Signatures(signatures=tuple(sorted(signatures, key=lambda one: one.key))))


def decode_signatures(data: bytes, build_id: Digest) -> Signatures:
    """Read a file of signatures.

    Raises:
        CorruptError: PPC205.
    """
    what = f"the signatures of build {build_id}"
    found = decode(data, Signatures, what=what, limit=MAX_SIGNATURES_BYTES)
    keys = [one.key for one in found.signatures]
    if keys != sorted(set(keys)):
        raise CorruptError(
            "PPC205",
            f"{what} are not in the stored format",
            expected="each key once, in order",
            found=", ".join(key[:12] for key in keys),
            hint="delete that file and sign the build again",
        )
    return found
