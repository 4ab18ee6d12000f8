import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.process import ROOT, CommandError, run

# Starts a grandchild in a session of its own, as torchrun does with ranks; both sleep for minutes.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"],
                         start_new_session=True)
print(child.pid, flush=True)
{then}
"""


def gone(pid: int) -> bool:
    """A killed process may stay as a zombie until whoever inherited it looks."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def start(then: str, output: Path, timeout: float) -> float:
    return run([sys.executable, "-c", PARENT.format(then=then)], os.environ, **_to(output, timeout))


def _to(output: Path, timeout: float) -> dict[str, object]:
    return {"output": output, "timeout": timeout}


def test_time_and_output(tmp_path: Path) -> None:
    output = tmp_path / "out"
    seconds = run([sys.executable, "-c", "print('said')"], os.environ, output=output, timeout=60)
    assert 0 < seconds < 60
    assert output.read_text() == "said\n"


def test_a_failure_shows_the_last_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('reason'); raise SystemExit(3)"]
    with pytest.raises(CommandError, match=r"exit code 3: .*\n.*reason"):
        run(command, os.environ, output=tmp_path / "out", timeout=60)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_what_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(CommandError, match="no end after"):
        start("time.sleep(300)", output, timeout=3)
    assert gone(int(output.read_text()))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_whoever_waits_can_be_told_to_end_and_leaves_nothing_running(tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = [sys.executable, "-c", PARENT.format(then="time.sleep(300)")]
    waits = (
        "import os, pathlib; from benchmarks.process import *; end_children_when_ended(); "
        f"run({command!r}, os.environ, output=pathlib.Path({str(output)!r}), timeout=300)"
    )
    waiting = subprocess.Popen([sys.executable, "-c", waits], cwd=ROOT)
    for _ in range(600):
        if output.exists() and output.read_text():
            break
        time.sleep(0.05)
    waiting.terminate()
    assert waiting.wait(60) == 128 + signal.SIGTERM
    assert gone(int(output.read_text()))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_what_a_finished_command_left_running_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "out"
    start("", output, timeout=60)
    assert gone(int(output.read_text()))
