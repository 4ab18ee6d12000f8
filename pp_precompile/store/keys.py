"""Ed25519 keys: made, kept in PEM files as OpenSSL writes them, and used to sign and to check.

``cryptography`` does the mathematics and the formats; this module knows which files and errors.
"""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.errors import StoreError
from pp_precompile.contract.signature import ALGORITHM, Signature, signed_message
from pp_precompile.store import atomic
from pp_precompile.store.failures import reason

_MAX_KEY_BYTES = 16 * 1024


@dataclass(frozen=True)
class PublicKey:
    """A key that signatures are checked with; ``id`` is the sha256 of its 32 bytes."""

    id: Digest
    raw: bytes

    def verifies(self, signature: Signature, manifest_id: Digest) -> bool:
        """Tell whether ``signature`` is this key's over the manifest."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if signature.key != self.id or signature.algorithm != ALGORITHM:
            return False
        try:
            key = Ed25519PublicKey.from_public_bytes(self.raw)
            key.verify(signature.value, signed_message(manifest_id))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A key that signs; it never leaves the file it was read from."""

    public: PublicKey
    key: Any

    def sign(self, manifest_id: Digest) -> Signature:
        """Return this key's signature over the manifest with that digest."""
        value = self.key.sign(signed_message(manifest_id))
        return Signature(key=self.public.id, algorithm=ALGORITHM, value=value)


def generate(path: Path) -> PublicKey:
    """Make a key: the private one at ``path``, for its owner only, the public one at ``path.pub``.

    Raises:
        StoreError: PPC212 if one of the files is there already; PPC202 if one cannot be written.
    """
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public_path = path.with_name(path.name + ".pub")
    for place in (path, public_path):
        if place.exists():
            raise _unusable(place, "no file: keys are never overwritten", "a file")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    public = key.public_key().public_bytes(
        forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
    )
    atomic.write(path, private, private=True)
    atomic.write(public_path, public)
    return _public(key.public_key())


def read_private(path: Path) -> PrivateKey:
    """Return the private key in a PEM file.

    Raises:
        StoreError: PPC212 if there is none, others than its owner may read it, or it is no
            unencrypted Ed25519 key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _unusable(path, "a file that only its owner may use (chmod 600)", f"mode {mode:o}")
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise _unusable(path, "an unencrypted private key in PEM form", str(error)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(path, "an Ed25519 key", type(key).__name__)
    return PrivateKey(public=_public(key.public_key()), key=key)


def read_public(paths: Iterable[str | Path]) -> tuple[PublicKey, ...]:
    """Return the public keys in PEM files, one a file.

    Raises:
        StoreError: PPC212 if one cannot be read or is no Ed25519 key, or if everyone can write it.
    """
    return tuple(_read_public(Path(path)) for path in paths)


def _read_public(path: Path) -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = _read(path)
    if os.stat(path).st_mode & stat.S_IWOTH:
        raise _unusable(path, "a file that not everyone can write", "it is world-writable")
    try:
        key = load_pem_public_key(data)
    except ValueError as error:
        raise _unusable(path, "a public key in PEM form", str(error)) from error
    if not isinstance(key, Ed25519PublicKey):
        raise _unusable(path, "an Ed25519 key", type(key).__name__)
    return _public(key)


def _public(key: Any) -> PublicKey:
    raw = key.public_bytes_raw()
    return PublicKey(id=digest_bytes(raw), raw=raw)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_KEY_BYTES)
    except OSError as error:
        raise _unusable(path, "a key in PEM form", reason(error)) from error


def _unusable(path: Path, expected: str, found: str) -> StoreError:
    return StoreError(
        "PPC212",
        f"{path} cannot be used as a key",
        expected=expected,
        found=found,
        hint="'pp-precompile keygen FILE' makes a key: FILE signs, FILE.pub is given to jobs",
        exit_code=2,
    )
