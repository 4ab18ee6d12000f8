"""``check_store``: each kind of fault is found and named; a sound store has none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store.fsck import check_store
from pp_precompile.store.store import Store
from tests.manifests import make_manifest, refer, some_digest

KEY = some_digest("key")
BUILD = make_manifest(2)
BLOB = next(iter(BUILD.blobs().values()))


@pytest.fixture
def filled(store: Store) -> Store:
    store.builds.publish(make_manifest(2, put=store.blobs.put))
    store.programs.record(ProgramEntry(key=KEY, blob=BLOB, kernels=0))
    return store


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def entry(store: Store) -> Path:
    return store.root / "programs" / KEY[:2] / f"{KEY}.msgpack"


FAULTS: dict[str, tuple[Callable[[Store], object], set[str]]] = {
    "a flipped bit": (lambda s: flip(s.blobs.path(BLOB.digest)), {"PPC204"}),
    "a blob cut off": (
        lambda s: s.blobs.path(BLOB.digest).write_bytes(b"x"),
        {"PPC204", "PPC203"},
    ),
    "a blob that is missing": (lambda s: s.blobs.path(BLOB.digest).unlink(), {"PPC203"}),
    "a manifest cut off": (
        lambda s: s.builds.path(BUILD.build_id).write_bytes(b"\x80"),
        {"PPC205"},
    ),
    "a manifest under another name": (
        lambda s: s.builds.path(BUILD.build_id).rename(s.builds.path(some_digest("other"))),
        {"PPC205"},
    ),
    "a damaged entry": (lambda s: entry(s).write_bytes(b"\x80"), {"PPC205"}),
    "an entry for no blob": (
        lambda s: s.programs.record(ProgramEntry(key=KEY, blob=refer(b"none"), kernels=0)),
        {"PPC203"},
    ),
    "a blob that everyone can write": (
        lambda s: s.blobs.path(BLOB.digest).chmod(0o666),
        {"PPC208"},
    ),
    "a blob that is a link": (
        lambda s: (
            s.blobs.path(BLOB.digest).rename(s.root / "elsewhere")
            and s.blobs.path(BLOB.digest).symlink_to(s.root / "elsewhere")
        ),
        {"PPC203"},
    ),
}


def test_a_sound_store(filled: Store) -> None:
    seen: list[tuple[int, int]] = []
    health = check_store(filled, lambda done, of: seen.append((done, of)))
    assert health.sound
    assert (health.builds, health.entries, health.blobs) == (1, 1, len(BUILD.blobs()))
    assert health.bytes == sum(ref.size for ref in BUILD.blobs().values())
    assert (health.orphans, health.leftovers) == (0, 0)
    assert seen == [(n, health.blobs) for n in range(1, health.blobs + 1)]


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(filled: Store, name: str) -> None:
    damage, codes = FAULTS[name]
    damage(filled)
    health = check_store(filled)
    assert not health.sound
    assert {finding.code for finding in health.findings} == codes


def test_a_missing_blob_is_reported_for_each_that_needs_it(filled: Store) -> None:
    filled.blobs.path(BLOB.digest).unlink()
    texts = [finding.message for finding in check_store(filled).findings]
    assert texts == [
        f"build {BUILD.build_id} refers to a blob that is not there",
        f"program entry {KEY} refers to a blob that is not there",
    ]


def test_orphans_and_leftovers_are_counted_and_no_fault(filled: Store) -> None:
    orphan = filled.blobs.put(b"nobody needs this")
    (filled.root / "blobs" / ".x.tmp").write_bytes(b"")
    (filled.root / "blobs" / "ab").mkdir(exist_ok=True)
    (filled.root / "blobs" / "ab" / ".y.part").write_bytes(b"")
    health = check_store(filled)
    assert health.sound
    assert (health.orphans, health.orphan_bytes, health.leftovers) == (1, orphan.size, 2)
