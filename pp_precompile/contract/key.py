"""A build's identity: the digest of its named factors.

Factors are kept beside the digest in the manifest, so that two builds can be told apart by name
and not only by two unequal digests.
"""

from collections.abc import Mapping

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import encode


def build_id(factors: Mapping[str, str]) -> Digest:
    """Return the sha256 of the canonical msgpack of ``factors`` (names to canonical values)."""
    return digest_bytes(encode(dict(factors)))


def differing(
    ours: Mapping[str, str], theirs: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """Return every factor that differs, as name to (ours, theirs), None where one lacks it.

    What a user sets comes before what follows from it, so that the first few say why.
    """
    return {
        name: (ours.get(name), theirs.get(name))
        for name in sorted(ours.keys() | theirs.keys(), key=_causes_first)
        if ours.get(name) != theirs.get(name)
    }


_DERIVED = ("inputs.", "schedule.", "split[")


def _causes_first(name: str) -> tuple[bool, str]:
    return name.startswith(_DERIVED), name
