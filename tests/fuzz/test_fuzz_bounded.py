"""Manifests that ask for too much are refused or looked through in bounded memory and time.

The limits are the operating system's, in a process of its own: one that goes beyond is killed.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.hostile import CASES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", CASES)
def test_work_does_not_grow_with_what_a_manifest_claims(name: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz.bounded", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, CASES[name][1]), done.stderr[-2000:]


def test_the_limits_hold() -> None:
    """The check can fail: a process that takes too much memory or time does not end well."""
    lines = (
        "from tests.fuzz.reading import limit",
        "limit(memory=1 << 30, seconds=1)",
    )
    for greedy, signal in (("bytes(2 << 30)", 1), ("while True: pass", -24)):
        command = [sys.executable, "-c", "\n".join((*lines, greedy))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        assert done.returncode in (signal, -9)
