"""A collector beside jobs that load and builders that reuse what it would delete."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pp_precompile.store.fsck import check_store
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest
from tests.store.collected import BUILDS, GRACE

ROOT = Path(__file__).parents[2]
ROLES = ("publish", "publish", "load", "load", "sweep", "sweep")
ROUNDS = 4


@pytest.mark.timeout(240)
def test_nothing_is_taken_from_jobs_and_builders(tmp_path: Path) -> None:
    """All builds and blobs are old enough to go when the processes start, all at once."""
    store = open_store(tmp_path / "store", create=True)
    counts: dict[str, Counter[str]] = {role: Counter() for role in ROLES}
    for number in range(ROUNDS):
        for stages in BUILDS:
            store.builds.publish(make_manifest(stages, put=store.blobs.put))
        if number % 2:
            # Now builders rely on blobs that nothing needs until they publish.
            for build in store.builds.ids():
                store.builds.remove(build)
        spare = store.blobs.put(f"needed by nobody in round {number}".encode())
        _age(store)
        for role, found in _run(store, number):
            counts[role] += found
        # Whatever was published is whole: blobs outlive a build that was collected since.
        assert check_store(store).sound
        assert set(make_manifest(max(BUILDS)).blobs()) <= set(store.blobs)
        assert spare.digest not in set(store.blobs)
    assert counts["publish"]["published"] == ROLES.count("publish") * ROUNDS * len(BUILDS)
    # Each race had its chance.
    assert counts["load"]["loaded"] > 0, counts
    assert counts["load"]["no build"] > 0, counts
    assert counts["sweep"]["builds"] > len(BUILDS), counts
    assert counts["sweep"]["blobs"] >= ROUNDS, counts


def _age(store: Store) -> None:
    for path in store.root.rglob("*"):
        then = path.stat().st_mtime - 2 * GRACE
        if path.is_file():
            os.utime(path, (then, then))


def _run(store: Store, number: int) -> list[tuple[str, Counter[str]]]:
    command = [sys.executable, "-m", "tests.store.collected", str(store.root)]
    workers = [
        (
            role,
            subprocess.Popen(
                [*command, role, str(number * len(ROLES) + index)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ),
        )
        for index, role in enumerate(ROLES)
    ]
    for _, worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
    for _, worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    found = []
    # Collectors come last, and end when their input does.
    for role, worker in sorted(workers, key=lambda pair: pair[0] == "sweep"):
        out, err = worker.communicate()
        assert worker.returncode == 0, f"{role}: {err}"
        found.append((role, Counter(json.loads(out))))
    return found
