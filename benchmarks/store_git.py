"""A bare git repository, driven by git's own commands, to compare the store with."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_DURABLE = ("-c", "core.fsync=loose-object", "-c", "core.fsyncMethod=fsync")
"""As durable as git gets for single objects; by default git 2.39 syncs none of them."""

_FAST = ("-c", "core.fsync=none")


def version() -> str:
    """Return git's version.

    Raises:
        OSError: if there is no git.
    """
    command = ["git", "version"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return text.removeprefix("git version ").strip()


class Repository:
    """A new bare repository that no configuration of this machine reaches.

    ``compression`` is zlib's level for everything, None for git's default.
    """

    def __init__(self, folder: Path, compression: int | None) -> None:
        level = () if compression is None else ("-c", f"core.compression={compression}")
        self.folder = folder
        self._options = (*level, "-c", "gc.auto=0")
        self.git("init", "--quiet", "--bare", str(folder), at=folder.parent)

    def hash_objects(self, paths: Sequence[Path], *, durable: bool = True) -> list[str]:
        """Write every file as a loose object and return the objects' names."""
        options = _DURABLE if durable else _FAST
        listed = "".join(f"{path}\n" for path in paths)
        return self.git(*options, "hash-object", "-w", "--stdin-paths", stdin=listed).split()

    def read(self, names: Sequence[str]) -> list[bytes]:
        """Return the objects' contents."""
        command = ["git", *self._options, "cat-file", "--batch"]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            contents = []
            for name in names:
                # One by one: git would wait for its reader with all names sent.
                process.stdin.write(f"{name}\n".encode())
                process.stdin.flush()
                size = int(process.stdout.readline().split()[2])
                contents.append(process.stdout.read(size))
                process.stdout.read(1)
            process.stdin.close()
        return contents

    def commit(self, names: Sequence[str]) -> None:
        """Make objects reachable: all of them in one tree of one commit on one branch."""
        entries = "".join(f"100644 blob {name}\t{name}\n" for name in names)
        tree = self.git(*_FAST, "mktree", stdin=entries).strip()
        identity = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
        commit = self.git(*_FAST, *identity, "commit-tree", "-m", "kept", tree).strip()
        self.git(*_FAST, "update-ref", "refs/heads/kept", commit)

    def fsck(self) -> None:
        """Check every object.

        Raises:
            CalledProcessError: if git finds something.
        """
        self.git("fsck", "--full", "--no-dangling", "--no-progress")

    def prune(self) -> None:
        """Delete the loose objects that nothing reaches."""
        self.git("prune", "--expire=now")

    def gc(self) -> None:
        """Delete what nothing reaches, and put everything else into one pack."""
        self.git("gc", "--quiet", "--prune=now")

    def count(self) -> int:
        """Return the number of objects, loose and packed."""
        pairs = (line.split(": ") for line in self.git("count-objects", "-v").splitlines())
        numbers = dict(pairs)
        return int(numbers["count"]) + int(numbers["in-pack"])

    def git(self, *arguments: str, stdin: str = "", at: Path | None = None) -> str:
        """Run one git command here and return what it prints."""
        return subprocess.run(
            ["git", *self._options, *arguments],
            cwd=at or self.folder,
            env=_environment(),
            input=stdin,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def moved(self, folder: Path) -> "Repository":
        """Return the copy of this repository at ``folder``."""
        copy = object.__new__(Repository)
        copy.folder, copy._options = folder, self._options
        return copy


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return own | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
