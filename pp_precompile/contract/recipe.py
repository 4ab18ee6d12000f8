"""Recipe files: the arguments that build, validate and train share, kept in one place.

``@configs/llama3_debug_pp4.args`` on a command line stands for the arguments in that file: each
line is split as a shell would split it, ``#`` starts a comment.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from pp_precompile.contract.errors import UsageError


def expand(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with every ``@FILE`` replaced by the arguments in that file.

    Raises:
        UsageError: PPC001 if a file cannot be read, cannot be split, or names another file.
    """
    return [item for arg in argv for item in (_read(arg[1:]) if _is_file(arg) else [arg])]


def _is_file(arg: str) -> bool:
    return arg.startswith("@") and len(arg) > 1


def _read(name: str) -> list[str]:
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
        words = [word for line in lines for word in shlex.split(line, comments=True)]
    except (OSError, ValueError) as error:
        raise UsageError(
            "PPC001",
            f"cannot read the recipe file {name}",
            expected="lines of arguments, '#' for comments",
            found=error,
            hint="check the path after '@'; configs/README.md describes the format",
        ) from error
    nested = [word for word in words if _is_file(word)]
    if nested:
        raise UsageError(
            "PPC001",
            f"the recipe file {name} names another recipe file",
            expected="arguments only",
            found=nested[0],
            hint="put both files on the command line",
        )
    return words
