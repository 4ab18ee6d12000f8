"""Dispatch to commands; the one place where errors become exit codes."""

import importlib
import sys
from collections.abc import Sequence

from pp_precompile.contract.errors import PrecompileError, UsageError
from pp_precompile.contract.recipe import expand

COMMANDS: dict[str, str] = {
    "build": "compile every stage of a job and store it, without ranks",
    "validate": "check builds against themselves, this host, and a job",
    "ls": "list the builds of a store",
    "show": "show a build, or one stage with the calling conventions of its programs",
    "diff": "compare two builds: key factors and programs",
    "explain": "list the key factors of a build, or what differs between it and a job",
    "plan": "tell the memory, waiting time and bytes to load of each rank in a step",
    "plot": "draw the schedule, the graph of programs or the memory of a build",
    "compare": "put builds, and schedules from files, side by side",
    "fsck": "check every digest and every reference of a store",
    "gc": "delete builds that are not wanted, and what nothing needs",
    "du": "count the bytes of a store, by build",
    "pin": "keep builds whatever gc is told",
    "push": "copy builds to a remote store or another folder",
    "pull": "copy builds from a remote store or another folder",
    "pack": "write one build to one file",
    "unpack": "put a packed build into a store",
    "keygen": "make a key to sign builds with",
    "sign": "sign builds",
    "verify": "check that builds are signed by a trusted key",
}
"""Commands with what they do. Each is a module of this package with a function ``run``."""


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code.

    0 is done or fits, 1 refused, 2 wrong usage or something unreadable.
    """
    try:
        words = expand(argv)
        if not words or words[0] in {"-h", "--help"}:
            print(_usage())
            return 0
        name, *arguments = words
        if name not in COMMANDS:
            raise _unknown(name)
        # Commands are imported one at a time: most must answer without importing torch.
        command = importlib.import_module(f"pp_precompile.cli.{name}")
        code: int = command.run(arguments)
    except PrecompileError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return code


def main_entry() -> None:
    """Run the command of this process's arguments and exit."""
    sys.exit(main(sys.argv[1:]))


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: pp-precompile COMMAND …", "", *lines])


def _unknown(name: str) -> UsageError:
    return UsageError(
        "PPC001",
        f"there is no command {name!r}",
        expected=", ".join(COMMANDS),
        found=name,
        hint="pp-precompile --help",
    )
