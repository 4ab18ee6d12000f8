"""The one error type that leaves this package, and the table of its stable codes.

Every error says what was expected, what was found and what to do next. Codes never change their
meaning: scripts and dashboards may rely on them.
"""

from dataclasses import dataclass
from typing import Any

from pp_precompile.contract.printable import printable

CODES: dict[str, str] = {
    # 0xx: how the command was used
    "PPC001": "bad command line or recipe file",
    "PPC002": "the configuration asks for something that precompiled stages do not support",
    "PPC003": "the batch cannot be cut into microbatches, or the schedule cannot be made",
    "PPC004": "the model cannot be cut into that many stages",
    "PPC005": "a configuration value has no canonical form",
    "PPC006": "torch or torchtitan is a version that was not checked",
    "PPC007": "a file of action times cannot be used",
    "PPC008": "a picture cannot be drawn",
    # 1xx: a build and the job that wants it
    "PPC101": "no build for this job",
    "PPC102": "the build was made for another host",
    "PPC103": "the live module differs from the stored stage",
    "PPC104": "the inputs differ from the stored stage",
    "PPC105": "a stage or program is missing from the build",
    "PPC106": "a stage runs more microbatches than a step has",
    # 2xx: the store
    "PPC201": "the store cannot be read",
    "PPC202": "the store cannot be written",
    "PPC203": "a blob is missing",
    "PPC204": "a blob is damaged",
    "PPC205": "a manifest is damaged",
    "PPC206": "a manifest has a format that this version does not read",
    "PPC207": "no such build, or more than one with this prefix",
    "PPC208": "the store is not safe to load code from",
    "PPC209": "a build is not signed by a trusted key",
    "PPC210": "the store is in use",
    "PPC211": "a remote store did not answer",
    "PPC212": "a key or signature cannot be read",
    "PPC213": "a packed build is damaged",
    # 3xx: compiling and loading programs
    "PPC301": "a stage could not be traced",
    "PPC302": "a stage program could not be compiled",
    "PPC303": "a stored program asks for a kernel that it does not carry",
    "PPC304": "a stage program is not portable",
    "PPC305": "a stored program could not be loaded",
    # 4xx: ranks
    "PPC401": "another rank failed",
    "PPC402": "a rank did not answer in time",
    "PPC403": "ranks disagree",
    # 5xx: the parts of a build against each other
    "PPC501": "a stage does not take what the stage before it returns",
    "PPC502": "a gradient is not what the stage before takes",
    "PPC503": "programs of a stage disagree on a value that one hands to another",
    "PPC504": "the loss does not fit the last stage",
    "PPC505": "a program names a value that its stage does not have",
    "PPC506": "a program describes a value unlike its stage",
    "PPC507": "the gradients are not those of the parameters that need one",
    "PPC508": "stages take different keyword inputs",
    "PPC509": "the content is not what the key factors say",
    "PPC511": "a module is in more than one stage",
    "PPC512": "a module is in no stage",
    "PPC513": "layers are not in the order of the model",
    "PPC514": "a parameter or buffer is in more than one stage",
    "PPC515": "a parameter or buffer lies outside its stage's modules",
    "PPC521": "an action is missing, or stands twice",
    "PPC522": "an action comes before one that it needs on its rank",
    "PPC523": "a send has no receive, or a receive no send",
    "PPC524": "the schedule waits for itself",
    "PPC525": "an action is for a stage or microbatch that is not there",
    "PPC526": "two ranks exchange values in different orders",
    "PPC527": "stages are not placed on ranks as the schedule needs",
    "PPC531": "a batch dimension is not the microbatch size",
    "PPC532": "a distributed tensor does not fit the mesh",
    "PPC533": "a rank is not on the mesh",
    # 6xx: a build against the job that asks for it
    "PPC601": "the split is not the one that the job asks for",
    "PPC602": "the schedule is not the one that the job asks for",
    "PPC603": "the mesh is not the one that the job asks for",
    "PPC604": "the microbatches are not those that the job asks for",
    "PPC605": "a key factor is not the one that the job asks for",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """The place that an error or a finding is about; empty parts do not apply."""

    stage: int | None = None
    rank: int | None = None
    program: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        parts = (
            ("stage", self.stage),
            ("rank", self.rank),
            ("program", self.program),
            ("field", self.field),
        )
        return ", ".join(f"{name} {value}" for name, value in parts if value is not None)


class PrecompileError(Exception):
    """What this package raises for anything a user can cause or must know.

    ``exit_code`` is what a command ends with: 1 for a refused artifact, 2 for wrong usage or
    something unreadable.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: Where | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
        exit_code: int = 1,
    ) -> None:
        """Record the parts and compose the text; an unknown ``code`` is a ``KeyError``."""
        self.code = code
        self.summary = CODES[code]
        self.message = message
        self.where = where or Where()
        self.expected = expected
        self.found = found
        self.hint = hint
        self.exit_code = exit_code
        super().__init__(self.render())

    def render(self) -> str:
        """Return the whole error as text: one head line, then one line for each known part.

        What it quotes may come from a hostile file, and is shown without control characters.
        """
        place = str(self.where)
        lines = [f"{self.code}: {self.message}" + (f" ({place})" if place else "")]
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.found is not None:
            lines.append(f"  found:    {self.found}")
        if self.hint:
            lines.append(f"  next:     {self.hint}")
        return printable("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes as parts: Python would call the class with the text alone.

        ``expected`` and ``found`` become text, since what they hold need not be picklable.
        """
        parts = {
            "where": self.where,
            "expected": None if self.expected is None else str(self.expected),
            "found": None if self.found is None else str(self.found),
            "hint": self.hint,
            "exit_code": self.exit_code,
        }
        return _rebuilt, (type(self), self.code, self.message, parts)


def _rebuilt(
    cls: type[PrecompileError], code: str, message: str, parts: dict[str, Any]
) -> PrecompileError:
    return cls(code, message, **parts)


class UsageError(PrecompileError):
    """The command line or configuration cannot work, whatever the store holds (exit code 2)."""

    def __init__(self, code: str, message: str, *, exit_code: int = 2, **parts: object) -> None:
        """Take the parts of :class:`PrecompileError`, with exit code 2 unless said otherwise."""
        super().__init__(code, message, exit_code=exit_code, **parts)  # type: ignore[arg-type]


class MissingBuildError(PrecompileError):
    """The store holds no build for the job: the one outcome that compiling can cure."""


class StaleBuildError(PrecompileError):
    """A build is there and whole, but was made for another host, module or input."""


class StoreError(PrecompileError):
    """The store itself cannot be read or written."""


class UntrustedError(PrecompileError):
    """A build is not signed by a trusted key. No store error: compiling would not cure it."""


class CorruptError(StoreError):
    """Bytes in the store are not what their name or manifest promises."""


class CompileError(PrecompileError):
    """A stage could not be turned into programs."""


class LoadError(PrecompileError):
    """Verified bytes could not be turned back into a callable program."""


class AgreementError(PrecompileError):
    """Ranks could not take one decision, because one failed, was silent or disagreed."""
