"""Full sha256 digests as their own type, so that no other string is mistaken for one.

Digests are never truncated in storage; only the command line shows and accepts prefixes.
"""

import hashlib
import re
from typing import NewType

Digest = NewType("Digest", str)

_HEX64 = re.compile(r"[0-9a-f]{64}")


def digest_bytes(data: bytes) -> Digest:
    """Return the sha256 of ``data`` as 64 lower-case hexadecimal digits."""
    return Digest(hashlib.sha256(data).hexdigest())


def is_digest(text: str) -> bool:
    """Tell whether ``text`` has the form of a full digest (64 lower-case hexadecimal digits)."""
    return _HEX64.fullmatch(text) is not None
