"""Collecting: what stays, what goes, in which order, and beside whom."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import StoreError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store import atomic, gc, lock
from pp_precompile.store.gc import Keep, collect
from pp_precompile.store.pins import pin, pinned, unpin
from pp_precompile.store.references import references
from pp_precompile.store.store import Store, open_store
from pp_precompile.store.usage import usage
from tests.manifests import make_manifest, some_digest

DAY = 86400.0


def publish(store: Store, stages: int, *, days_old: float) -> Manifest:
    """Publish a build that was last used so long ago; builds share their first stages' blobs."""
    manifest = make_manifest(stages, put=store.blobs.put)
    store.builds.publish(manifest)
    age(store, [store.builds.path(manifest.build_id)], days_old)
    age(store, [store.blobs.path(digest) for digest in manifest.blobs()], days_old)
    return manifest


def age(store: Store, paths: Sequence[Path], days: float) -> None:
    for path in paths:
        then = path.stat().st_mtime - days * DAY
        os.utime(path, (then, then))


@pytest.fixture
def three(store: Store) -> list[Manifest]:
    """Builds of one, two and three stages, used 30, 20 and 10 days ago."""
    return [publish(store, stages, days_old=40 - 10 * stages) for stages in (1, 2, 3)]


def ids(store: Store) -> set[Digest]:
    return set(store.builds.ids())


def test_without_rules_every_build_stays(store: Store, three: list[Manifest]) -> None:
    spare = store.blobs.put(b"nobody needs this")
    age(store, [store.blobs.path(spare.digest)], 2)
    swept = collect(store, Keep())
    assert ids(store) == {build.build_id for build in three}
    assert (swept.builds, swept.blobs, swept.blob_bytes) == ([], 1, spare.size)
    assert set(store.blobs) == set(three[2].blobs())


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (Keep(newest=1), [2]),
        (Keep(newest=2), [1, 2]),
        (Keep(newest=0), []),
        (Keep(newest=9), [0, 1, 2]),
        (Keep(seconds=15 * DAY), [2]),
        (Keep(seconds=25 * DAY), [1, 2]),
        (Keep(newest=1, seconds=25 * DAY), [1, 2]),
        (Keep(newest=2, seconds=15 * DAY), [1, 2]),
    ],
)
def test_what_any_rule_keeps_stays(
    store: Store, three: list[Manifest], keep: Keep, kept: list[int]
) -> None:
    swept = collect(store, keep, grace=0)
    assert ids(store) == {three[index].build_id for index in kept}
    assert set(swept.builds) == {build.build_id for build in three} - ids(store)
    needed = {digest for index in kept for digest in three[index].blobs()}
    assert set(store.blobs) == needed
    for index in kept:
        for ref in three[index].blobs().values():
            store.blobs.get(ref)


def test_named_and_pinned_builds_stay(store: Store, three: list[Manifest]) -> None:
    pin(store, three[0].build_id)
    assert pinned(open_store(store.root, create=False)) == {three[0].build_id}
    collect(store, Keep(newest=0, builds={three[1].build_id}), grace=0)
    assert ids(store) == {three[0].build_id, three[1].build_id}
    unpin(store, three[0].build_id)
    unpin(store, three[0].build_id)
    collect(store, Keep(newest=0), grace=0)
    assert (ids(store), set(store.blobs)) == (set(), set())


def test_a_job_that_has_read_a_manifest_still_finds_its_blobs(
    store: Store, three: list[Manifest]
) -> None:
    """The blobs are old, but the time of grace begins when their build goes."""
    read = store.builds.read(three[2].build_id)
    swept = collect(store, Keep(newest=0))
    assert (ids(store), swept.blobs, swept.waiting) == (set(), 0, len(read.blobs()))
    for ref in read.blobs().values():
        store.blobs.get(ref)
    assert collect(store, Keep(newest=0)).blobs == 0
    age(store, [store.blobs.path(digest) for digest in read.blobs()], 2)
    assert collect(store, Keep(newest=0)).blobs == len(read.blobs())
    assert list(store.blobs) == []


def test_what_a_builder_reuses_is_young_again(store: Store) -> None:
    refs = [store.blobs.put(data) for data in (b"put again", b"found by its key", b"forgotten")]
    store.programs.record(ProgramEntry(key=some_digest("key"), blob=refs[1], kernels=0))
    age(store, [store.blobs.path(ref.digest) for ref in refs], 2)
    store.blobs.put(b"put again")
    assert store.programs.find(some_digest("key")) is not None
    assert collect(store, Keep()).blobs == 1
    assert set(store.blobs) == {refs[0].digest, refs[1].digest}


def test_an_entry_goes_with_its_blob(store: Store) -> None:
    ref = store.blobs.put(b"program")
    entry = ProgramEntry(key=some_digest("key"), blob=ref, kernels=0)
    store.programs.record(entry)
    age(store, [store.blobs.path(ref.digest)], 2)
    assert collect(store, Keep()).entries == 1
    assert (list(store.programs), list(store.blobs)) == ([], [])


def test_loading_counts_as_use(store: Store, three: list[Manifest]) -> None:
    store.builds.use(three[0].build_id)
    collect(store, Keep(newest=1), grace=0)
    assert ids(store) == {three[0].build_id}


def test_a_dry_run_deletes_nothing_and_counts_the_same(store: Store, three: list[Manifest]) -> None:
    before = {path: path.stat().st_mtime for path in store.root.rglob("*")}
    planned = collect(store, Keep(newest=1), grace=0, dry_run=True)
    assert {path: path.stat().st_mtime for path in store.root.rglob("*")} == before
    done = collect(store, Keep(newest=1), grace=0)
    assert (planned.builds, planned.blobs, planned.blob_bytes) == (
        done.builds,
        done.blobs,
        done.blob_bytes,
    )


def test_a_manifest_that_cannot_be_read_keeps_all_blobs(
    store: Store, three: list[Manifest]
) -> None:
    store.builds.path(three[0].build_id).write_bytes(b"\x80")
    swept = collect(store, Keep(newest=0), grace=0)
    assert set(swept.builds) == {three[1].build_id, three[2].build_id}
    assert set(store.blobs) == set(three[2].blobs())
    assert store.builds.path(three[0].build_id).exists()


def test_old_leftovers_go_and_young_ones_stay(store: Store) -> None:
    old, young = (store.root / "blobs" / f".{name}.tmp" for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"12345")
    age(store, [old], 2)
    swept = collect(store, Keep())
    assert (swept.leftovers, swept.leftover_bytes) == (1, 5)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_writer_and_a_collector_wait_for_each_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While blobs are deleted, nobody relies on one that was found a moment ago."""
    ref = store.blobs.put(b"program")
    age(store, [store.blobs.path(ref.digest)], 2)
    deleting, go_on = threading.Event(), threading.Event()
    real = gc._sweep

    def slow(*arguments: object, **keywords: object) -> None:
        deleting.set()
        assert go_on.wait(30)
        real(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(gc, "_sweep", slow)
    collector = threading.Thread(target=collect, args=(store, Keep()))
    collector.start()
    assert deleting.wait(30)
    done: list[object] = []
    writer = threading.Thread(target=lambda: done.append(store.blobs.put(b"program")))
    writer.start()
    writer.join(0.3)
    assert done == [], "the writer waits"
    go_on.set()
    collector.join()
    writer.join(30)
    assert done == [ref]
    assert store.blobs.get(ref) == b"program"


def test_a_collector_does_not_wait_for_ever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "_WAIT_SECONDS", 0.1)
    with lock.writing(store.root, seconds=0), pytest.raises(StoreError, match="PPC210"):
        collect(store, Keep())


def test_usage_counts_shared_blobs_once(store: Store, three: list[Manifest]) -> None:
    spare = store.blobs.put(b"spare")
    (store.root / "blobs" / ".x.tmp").write_bytes(b"123")
    found = usage(store, references(store))
    sizes = {digest: ref.size for build in three for digest, ref in build.blobs().items()}
    assert found.blob_bytes == sum(sizes.values()) + spare.size
    assert (found.spare_bytes, found.leftover_bytes) == (spare.size, 3)
    by_id = {one.build: one for one in found.builds}
    one, _, largest = (by_id[build.build_id] for build in three)
    manifest = store.builds.path(three[2].build_id).stat().st_size
    assert largest.bytes == sum(sizes[digest] for digest in three[2].blobs()) + manifest
    alone = set(three[2].blobs()) - set(three[1].blobs())
    assert largest.own_bytes == sum(sizes[digest] for digest in alone) + manifest
    assert one.own_bytes == store.builds.path(three[0].build_id).stat().st_size
    assert [one.build for one in found.builds] == [build.build_id for build in reversed(three)]
    files = sum(path.stat().st_size for path in store.root.rglob("*") if path.is_file())
    assert found.total_bytes == files


def test_deleting_waits_for_the_disk_once_a_folder_entries_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a collector works, writers wait: it must not sync once for every blob."""
    refs = [store.blobs.put(str(number).encode()) for number in range(600)]
    for ref in refs:
        store.programs.record(
            ProgramEntry(key=some_digest(f"key of {ref.digest}"), blob=ref, kernels=0)
        )
    synced: list[str] = []
    sync = atomic.sync_folder

    def record(folder: Path) -> None:
        synced.append(folder.relative_to(store.root).parts[0])
        if synced[-1] == "programs":
            assert len(list(store.blobs)) == len(refs)
        sync(folder)

    monkeypatch.setattr(atomic, "sync_folder", record)
    swept = collect(store, Keep(), grace=0)
    assert (swept.blobs, swept.entries) == (600, 600)
    assert synced == sorted(synced, reverse=True)
    assert set(synced) == {"programs", "blobs"}
    assert max(synced.count("programs"), synced.count("blobs")) <= 256
    assert (list(store.blobs), list(store.programs)) == ([], [])
