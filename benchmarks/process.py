"""Run one command with a hard end: when it is over or late, nothing that it started is left.

Killing its process group is not enough: torchrun gives every rank a session of its own. So each
command carries a mark in its environment, which everything that it starts inherits.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout: every command runs here, so that recipes can be named by relative paths."""

MARK = "PP_PRECOMPILE_BENCHMARK_RUN"

_SHOWN_LINES = 40
_ROUNDS, _PAUSE = 100, 0.05


class CommandError(Exception):
    """A command ended with an error, or had to be killed; the text ends with its last output."""


def run(
    command: Sequence[str], environment: Mapping[str, str], *, output: Path, timeout: float
) -> float:
    """Run ``command`` and return its wall time in seconds.

    Args:
        command: program and arguments.
        environment: the whole environment, to which only the mark is added.
        output: the file that takes what the command prints.
        timeout: seconds after which everything is killed.

    Raises:
        CommandError: if it is late or its exit code is not 0.
    """
    mark = uuid.uuid4().hex
    start = time.perf_counter()
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            env={**environment, MARK: mark},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            kill_marked(mark, process.pid)
            process.wait()
    seconds = time.perf_counter() - start
    if code != 0:
        how = f"no end after {timeout:.0f} s" if code is None else f"exit code {code}"
        raise CommandError(f"{how}: {' '.join(command)}\n{_tail(output)}")
    return seconds


def end_children_when_ended() -> None:
    """Leave nothing running when this process is told to end (SIGTERM) while :func:`run` waits."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def kill_marked(mark: str, group: int) -> None:
    """Kill process group ``group`` and every process that carries ``mark``."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    # Again and again: what was just being started has the mark too.
    for _ in range(_ROUNDS):
        marked = list(_marked(mark))
        if not marked:
            return
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def _marked(mark: str) -> Iterator[int]:
    """Yield the processes whose environment holds ``mark`` (Linux; elsewhere there are none)."""
    entry = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        # Processes of other users cannot be read, and those that end in between are gone.
        with contextlib.suppress(OSError):
            if entry in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)


def _tail(output: Path) -> str:
    lines = output.read_text(errors="replace").splitlines()
    return "\n".join(lines[-_SHOWN_LINES:])
