"""From findings to the one error that stops a build from being loaded."""

from collections.abc import Iterable

from pp_precompile.contract.errors import PrecompileError, StaleBuildError
from pp_precompile.graph.finding import Finding, errors

_MOST = 20
"""Most findings that one error lists; a build for another job can differ in hundreds of ways."""


def refuse(
    findings: Iterable[Finding], what: str, *, error: type[PrecompileError] = StaleBuildError
) -> None:
    """Raise one error that lists every finding that is an error; do nothing if there is none.

    Args:
        findings: of :func:`check_build` or :func:`check_request`.
        what: names the build, for example ``"build 744e341f0949"``.
        error: the class to raise.

    Raises:
        PrecompileError: of class ``error``, with the code and place of the first finding.
    """
    found = errors(findings)
    if not found:
        return
    first = found[0]
    if len(found) == 1:
        raise error(
            first.code,
            f"{what}: {first.message}",
            where=first.where,
            expected=first.expected,
            found=first.found,
            hint=first.hint,
        )
    lines = [line for finding in found[:_MOST] for line in str(finding).splitlines()]
    if len(found) > _MOST:
        lines.append(f"and {len(found) - _MOST} more")
    text = "".join(f"\n  {line}" for line in lines)
    raise error(first.code, f"{what} does not fit in {len(found)} ways:{text}", hint=first.hint)
