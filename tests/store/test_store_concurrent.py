"""Several processes write, read and delete the same objects: nothing torn, nobody crashes."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pp_precompile.store.store import open_store

ROOT = Path(__file__).parent.parent.parent

PROCESSES, ROUNDS = 8, 500


def start(store: Path, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.worker", str(store), str(seed), str(ROUNDS)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(120)
def test_writers_readers_and_deleters_of_the_same_objects(tmp_path: Path) -> None:
    workers = [start(tmp_path / "store", seed) for seed in range(PROCESSES)]
    counts: Counter[str] = Counter()
    # All start at once, after the slow imports.
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        out, err = worker.communicate()
        assert worker.returncode == 0, err
        counts.update(json.loads(out))
    assert sum(counts.values()) == PROCESSES * ROUNDS
    # Each outcome was seen, so each race had its chance.
    for outcome in ("put", "got", "missing", "recorded", "found", "not found", "published", "read"):
        assert counts[outcome] > 0, counts
    assert counts["no build"] + counts["removed"] > 0, counts
    assert list((tmp_path / "store").rglob("*.tmp")) == []
    store = open_store(tmp_path / "store", create=False)
    assert all(store.blobs.path(digest).is_file() for digest in store.blobs)
