"""Signatures over a manifest, detached from it. docs/format.md is the specification."""

import msgspec

from pp_precompile.contract.digest import Digest, StoredDigest

ALGORITHM = "ed25519"

MAX_SIGNATURES_BYTES = 16 * 1024
"""Most bytes of a file of signatures: about a hundred keys."""

_CONTEXT = b"pp_precompile manifest "
"""Keeps a signature from meaning anything else than: I built, or reviewed, this manifest."""


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key's signature; ``key`` is the sha256 of the 32 bytes of the public key."""

    key: StoredDigest
    algorithm: str
    value: bytes


class Signatures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All signatures of one build, in the order of their keys."""

    signatures: tuple[Signature, ...]


def signed_message(manifest_id: Digest) -> bytes:
    """Return what is signed: a constant text and the digest of the manifest's bytes as text."""
    return _CONTEXT + manifest_id.encode()
