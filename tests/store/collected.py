"""One of several processes that publish and load builds of a store while others collect in it.

``python -m tests.store.collected STORE ROLE SEED`` says that it is ready, waits for a line, does
its part with every build of :data:`BUILDS` stages, and ends with 0 and a count of what it saw, or
with a traceback: a blob that was taken from a job or from a builder.
"""

import json
import select
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from pp_precompile.contract.errors import MissingBuildError
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store.gc import Keep, collect
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest, some_digest

BUILDS = range(1, 13)
"""Numbers of stages: a build's blobs are all in the next one, too."""

GRACE = 3600.0
"""Seconds; the test makes what is there older than that before it starts the processes."""


def publish(store: Store, chance: Random) -> Counter[str]:
    """Build what is there already, as a builder does: find by key or put, then publish."""
    counts: Counter[str] = Counter()
    for stages in chance.sample(BUILDS, len(BUILDS)):
        manifest = make_manifest(stages, put=store.blobs.put)
        for digest, ref in manifest.blobs().items():
            entry = ProgramEntry(key=some_digest(digest), blob=ref, kernels=0)
            if store.programs.find(entry.key) is None:
                counts["recorded"] += 1
                store.programs.record(entry)
        store.builds.publish(manifest)
        counts["published"] += 1
    return counts


def load(store: Store, chance: Random) -> Counter[str]:
    """Read all manifests, as jobs do that start together, and then all that they need."""
    counts: Counter[str] = Counter()
    for _ in range(4):
        found = []
        for stages in chance.sample(BUILDS, len(BUILDS)):
            try:
                found.append(store.builds.read(make_manifest(stages).build_id))
            except MissingBuildError:
                counts["no build"] += 1
        time.sleep(0.05)  # a collector's turn
        for manifest in found:
            for ref in manifest.blobs().values():
                store.blobs.get(ref)
            counts["loaded"] += 1
    return counts


def sweep(store: Store, chance: Random) -> Counter[str]:
    """Collect again and again until the test says that all others are done."""
    counts: Counter[str] = Counter()
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        swept = collect(store, Keep(newest=chance.choice((0, 0, 2))), grace=GRACE)
        counts["builds"] += len(swept.builds)
        counts["blobs"] += swept.blobs
    return counts


ROLES: dict[str, Callable[[Store, Random], Counter[str]]] = {
    "publish": publish,
    "load": load,
    "sweep": sweep,
}


def main(root: str, role: str, seed: str) -> None:
    store = open_store(Path(root), create=False)
    print("ready", flush=True)
    sys.stdin.readline()
    json.dump(ROLES[role](store, Random(int(seed))), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
