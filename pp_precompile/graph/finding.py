"""What a check reports: one thing that does not fit, with its place and what to do about it."""

import itertools
from collections.abc import Iterable, Sized
from typing import Literal

import msgspec

from pp_precompile.contract.errors import CODES, PrecompileError, Where

Severity = Literal["error", "warning"]

NOWHERE = Where()

MAX_TEXT = 4000
"""Most characters of what was expected and of what was found; the rest is cut off."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that does not fit.

    ``code`` is one of :data:`pp_precompile.contract.errors.CODES`. An error keeps the build from
    being loaded; a warning does not.
    """

    code: str
    message: str
    where: Where = NOWHERE
    expected: str
    found: str
    hint: str = "build again"
    severity: Severity = "error"

    def __post_init__(self) -> None:
        """Refuse an unknown code with a ``KeyError``; cut texts that quote too much of a build.

        A build can have a text of megabytes, and thousands of findings can be about it.
        """
        CODES[self.code]
        for name in ("expected", "found"):
            text = getattr(self, name)
            if len(text) > MAX_TEXT:
                msgspec.structs.force_setattr(self, name, f"{text[:MAX_TEXT]}…")

    def __str__(self) -> str:
        """Return it as text, in the form of this package's errors."""
        return PrecompileError(
            self.code,
            self.message,
            where=self.where,
            expected=self.expected,
            found=self.found,
            hint=self.hint,
        ).render()


def from_error(error: PrecompileError, where: Where = NOWHERE) -> Finding:
    """Return an error that a check ran into as a finding, at ``where`` unless it names a place."""
    return Finding(
        code=error.code,
        message=error.message,
        where=error.where if str(error.where) else where,
        expected=str(error.expected),
        found=str(error.found),
        hint=error.hint or "",
    )


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return those that keep a build from being loaded."""
    return [finding for finding in findings if finding.severity == "error"]


def listed(names: Iterable[object], *, most: int = 6) -> str:
    """Join names for a message: the first few, and how many more there are."""
    items = names if isinstance(names, Sized) else list(names)
    shown = ", ".join(str(name) for name in itertools.islice(items, most)) or "none"
    return shown + (f" and {len(items) - most} more" if len(items) > most else "")
