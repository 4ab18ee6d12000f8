"""Integers of stored structures, with the range that reading enforces.

Builders may hold any ``int``; bytes that were read hold only these.
"""

from typing import Annotated

import msgspec

LARGEST = 2**63 - 1
"""The largest integer that torch can count elements or bytes with."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
"""Zero or more."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
"""One or more."""
