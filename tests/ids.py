"""Names for the cases of a test."""

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def shown(value: object) -> str:
    """Return ``repr(value)`` without addresses: processes that share the tests must agree on it."""
    return _ADDRESS.sub("", repr(value))
