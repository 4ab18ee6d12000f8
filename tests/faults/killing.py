"""Start a command, and kill it with all that it started once its output says something."""

import re
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from benchmarks.process import MARK, kill_marked
from tests.e2e.launch import ROOT, TIMEOUT


def run_until_killed(
    command: Sequence[str], environment: dict[str, str], output: Path, *, when: str
) -> str:
    """Return the output up to the moment when it matched ``when`` and everything got SIGKILL.

    Raises:
        AssertionError: if the command ends, or time does, before that.
    """
    mark = uuid.uuid4().hex
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command,
            env=environment | {MARK: mark, "PYTHONUNBUFFERED": "1"},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    end = time.monotonic() + TIMEOUT
    try:
        while not re.search(when, output.read_text(errors="replace")):
            text = output.read_text(errors="replace")[-4000:]
            assert process.poll() is None, f"ended before {when!r}:\n{text}"
            assert time.monotonic() < end, f"no {when!r} in time:\n{text}"
            time.sleep(0.02)
    finally:
        kill_marked(mark, process.pid)
        process.wait(timeout=60)
    return output.read_text(errors="replace")
