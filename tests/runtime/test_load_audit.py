"""Nothing of a blob is unpickled, imported or loaded as native code before its digest was checked.

The interpreter's own audit events say what ran, whichever library asked for it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pp_precompile.contract.encoding import encode
from pp_precompile.runtime.sinks import StoreSink
from pp_precompile.stage.programs import compile_stages
from pp_precompile.store.store import open_store
from tests.modules import Block, traced

ROOT = Path(__file__).parents[2]

Report = dict[str, Any]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store with the programs of one stage, and a file with the stage's record."""
    folder = tmp_path_factory.mktemp("audit")
    store = open_store(folder / "store", create=True)
    stage = traced(Block(), torch.empty(4, 8, requires_grad=True), loss=True)
    record = stage.record(compile_stages([stage], StoreSink(store)))
    (folder / "record").write_bytes(encode(record))
    return folder / "store", folder / "record"


def audited(stored: tuple[Path, Path], how: str, cache: Path) -> list[Report]:
    """Load the stage in a new process with an empty cache."""
    command = [sys.executable, "-m", "tests.runtime.audited", *map(str, stored), how]
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    reports: list[Report] = json.loads(done.stdout.splitlines()[-1])
    return reports


def test_what_runs_of_a_good_blob_was_verified_before(
    stored: tuple[Path, Path], tmp_path: Path
) -> None:
    """Also shows that the events come: without this the next test could not fail."""
    [report] = audited(stored, "good", tmp_path)
    assert report["code"] is None
    assert report["loaded"] == report["verified"] >= 3
    assert report["unverified"] == []
    assert report["seen"].keys() >= {"unpickle", "pickle.find_class", "exec", "compile", "import"}


def test_nothing_runs_of_a_blob_with_one_wrong_byte(
    stored: tuple[Path, Path], tmp_path: Path
) -> None:
    reports = audited(stored, "damaged", tmp_path)
    assert len(reports) >= 3 * 6
    for report in reports:
        assert (report["code"], report["seen"], report["loaded"]) == ("PPC204", {}, 0), report
    assert len({report["role"] for report in reports}) >= 3


def test_a_reader_that_verifies_nothing_is_caught(
    stored: tuple[Path, Path], tmp_path: Path
) -> None:
    """The check can fail: the same wrong bytes, read without looking at their digest."""
    reports = audited(stored, "unverified", tmp_path)
    assert any(report["unverified"] for report in reports)
    assert not any(report["verified"] for report in reports)
