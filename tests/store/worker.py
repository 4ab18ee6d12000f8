"""One of several processes that use the same few objects of one store at random.

``python -m tests.store.worker STORE SEED ROUNDS`` says that it is ready, waits for a line, and ends
with 0 and a count of what it saw, or with a traceback: a torn object, or an error where another
process was merely faster.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from pp_precompile.contract.errors import MissingBuildError, StoreError
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest, refer, some_digest

CONTENTS = tuple(bytes([number]) * (60_000 * number + 1) for number in range(4))
ENTRIES = tuple(
    ProgramEntry(key=some_digest("key"), blob=refer(data), kernels=number)
    for number, data in enumerate(CONTENTS)
)
BUILDS = tuple(make_manifest(1, factors={"n": str(number)}) for number in range(2))


def put(store: Store, chance: Random) -> str:
    data = chance.choice(CONTENTS)
    assert store.blobs.put(data) == refer(data)
    return "put"


def get(store: Store, chance: Random) -> str:
    data = chance.choice(CONTENTS)
    try:
        assert store.blobs.get(refer(data)) == data
    except StoreError as error:
        if error.code != "PPC203":
            raise
        return "missing"
    return "got"


def record(store: Store, chance: Random) -> str:
    store.programs.record(chance.choice(ENTRIES))
    return "recorded"


def find(store: Store, chance: Random) -> str:
    entry = store.programs.find(ENTRIES[0].key)
    assert entry is None or entry in ENTRIES
    return "not found" if entry is None else "found"


def publish(store: Store, chance: Random) -> str:
    number = chance.randrange(len(BUILDS))
    manifest = make_manifest(1, factors={"n": str(number)}, put=store.blobs.put)
    assert manifest == BUILDS[number]
    store.builds.publish(manifest)
    return "published"


def read(store: Store, chance: Random) -> str:
    wanted = chance.choice(BUILDS)
    if wanted.build_id not in store.builds.ids():
        return "no build"
    try:
        found = store.builds.read(wanted.build_id)
    except MissingBuildError:
        # Removed since it was listed.
        return "no build"
    assert found == wanted
    return "read"


def remove(store: Store, chance: Random) -> str:
    chance.choice(
        (
            lambda: store.blobs.remove(refer(chance.choice(CONTENTS)).digest),
            lambda: store.programs.remove(ENTRIES[0].key),
            lambda: store.builds.remove(chance.choice(BUILDS).build_id),
        )
    )()
    return "removed"


def listed(store: Store, chance: Random) -> str:
    known = {refer(data).digest for data in CONTENTS}
    known |= {digest for build in BUILDS for digest in build.blobs()}
    assert set(store.blobs) <= known
    return "listed"


ACTIONS: tuple[Callable[[Store, Random], str], ...] = (
    *(put, get, record, find, publish, read, remove),
    *(get, find, read, listed),
)


def main(root: str, seed: str, rounds: str) -> None:
    store = open_store(Path(root), create=True)
    chance = Random(int(seed))
    print("ready", flush=True)
    sys.stdin.readline()
    counts = Counter(chance.choice(ACTIONS)(store, chance) for _ in range(int(rounds)))
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
