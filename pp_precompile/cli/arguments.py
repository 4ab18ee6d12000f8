"""Arguments of the commands that read a store: parsed fast, refused with one clear message."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pp_precompile.contract.errors import UsageError
from pp_precompile.store.keys import read_public
from pp_precompile.store.location import store_location
from pp_precompile.store.store import Store, open_store

if TYPE_CHECKING:
    from pp_precompile.graph.request import Request


class Parser(argparse.ArgumentParser):
    """argparse with this package's errors: a usage fault is PPC001 and exit code 2."""

    def __init__(
        self,
        command: str,
        description: str,
        *,
        job: bool = False,
        epilog: str | None = None,
        operand: str = "STORE",
        about: str = "the store's folder or URL",
    ) -> None:
        """Start with what the command is about and ``--json``.

        Args:
            command: its name.
            description: what it does.
            job: whether it takes a job's arguments after ``--``.
            epilog: what else its help says.
            operand: how its first argument is called.
            about: what its first argument is.
        """
        if job:
            epilog = "[-- TORCHTITAN ARGUMENTS]: compare with this job (imports torch)"
        super().__init__(
            prog=f"pp-precompile {command}",
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            add_help=False,
        )
        self.takes_job = job
        name = "store" if operand == "STORE" else "operand"
        self.add_argument(name, metavar=operand, help=about)
        self.add_argument("--json", action="store_true", help="one JSON document on stdout")
        self.add_argument("-h", "--help", action="store_true", help="show this help")

    def takes_trusted_keys(self, *, required: bool = False) -> None:
        """Add ``--trusted-keys``, which :meth:`Parsed.store` obeys."""
        self.add_argument(
            "--trusted-keys",
            metavar="FILE",
            nargs="+",
            required=required,
            help="public keys: refuse builds that none of them signed",
        )

    def error(self, message: str) -> NoReturn:
        """Raise the fault as a :class:`UsageError`."""
        raise UsageError(
            "PPC001",
            message,
            expected=" ".join(self.format_usage().split()[1:]),
            found=" ".join(sys.argv[1:]) or "no arguments",
            hint=f"{self.prog} --help",
        )


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A command's own options, and the job's arguments if there was a ``--``."""

    options: argparse.Namespace
    job: list[str] | None

    def store(self) -> Store:
        """Open the store that was named.

        Raises:
            PrecompileError: PPC001, PPC201, PPC208 or PPC212.
        """
        paths = getattr(self.options, "trusted_keys", None)
        keys = read_public(paths) if paths else None
        return open_store(store_location(self.options.store), create=False, trusted=keys)

    def request(self) -> "Request | None":
        """Return what the job asks for; None if no job was given. Says that it imports torch.

        Raises:
            PrecompileError: for arguments that torchtitan or this package refuses.
        """
        if self.job is None:
            return None
        print("evaluating the job's configuration imports torch", file=sys.stderr)
        from pp_precompile.titan import cpu_platform

        if cpu_platform.needed():
            cpu_platform.enable()
        from pp_precompile.titan.arguments import parse as parse_job
        from pp_precompile.titan.request import evaluate

        return evaluate(parse_job(self.job))


def parse(parser: Parser, argv: Sequence[str]) -> Parsed | None:
    """Read ``argv``; return None if help was asked for, which is then printed.

    Raises:
        UsageError: PPC001.
    """
    words = list(argv)
    own = words[: words.index("--")] if "--" in words else words
    job = words[len(own) + 1 :] if "--" in words else None
    if {"-h", "--help"} & set(own):
        print(parser.format_help())
        return None
    if job is not None and not parser.takes_job:
        parser.error("this command takes no torchtitan arguments")
    return Parsed(options=parser.parse_args(own), job=job)
