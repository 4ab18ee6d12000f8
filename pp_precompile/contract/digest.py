"""Full sha256 digests as their own type, so that no other string is mistaken for one.

Digests are never truncated in storage; only the command line shows and accepts prefixes.
"""

import hashlib
import re
from typing import Annotated, NewType

import msgspec

Digest = NewType("Digest", str)

_FORM = r"^[0-9a-f]{64}\Z"
_HEX64 = re.compile(_FORM)

StoredDigest = Annotated[Digest, msgspec.Meta(pattern=_FORM)]
"""A digest inside a stored structure: reading refuses text of any other form.

Digests become file names, so this is also what keeps a hostile one inside the store.
"""


def digest_bytes(data: bytes) -> Digest:
    """Return the sha256 of ``data`` as 64 lower-case hexadecimal digits."""
    return Digest(hashlib.sha256(data).hexdigest())


def is_digest(text: str) -> bool:
    """Tell whether ``text`` has the form of a full digest (64 lower-case hexadecimal digits)."""
    return _HEX64.match(text) is not None
