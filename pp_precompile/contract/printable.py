"""Texts of a store as a terminal may show them: nothing in them moves its cursor or its colours."""

import re

# C0 but for tab and line feed, DEL, C1, and what turns the direction of writing around.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return ``text`` with control characters as escapes: ``\x1b`` for ESC."""
    return _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
