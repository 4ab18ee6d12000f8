"""A store in a real S3 server: read through a cache, written, copied, and cut off in the middle."""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pp_precompile.contract.errors import MissingBuildError, PrecompileError, StoreError, UsageError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store import remote, shelf
from pp_precompile.store.fsck import check_store
from pp_precompile.store.gc import Keep, collect
from pp_precompile.store.keys import generate, read_private, read_public
from pp_precompile.store.location import cache_folder
from pp_precompile.store.references import references
from pp_precompile.store.remote import Remote
from pp_precompile.store.store import Store, existing_store, open_store
from pp_precompile.store.transfer import copy
from pp_precompile.store.usage import usage
from tests.manifests import make_manifest, refer, some_digest
from tests.store import s3

pytestmark = pytest.mark.timeout(120)

URL = f"s3://{s3.BUCKET}/some/store"

BIG = os.urandom(3 * 1024 * 1024)


@pytest.fixture(scope="module")
def line() -> Iterator[s3.Line]:
    """A server that all tests of this file share, in one process."""
    with s3.server() as line, s3.set_environment(s3.environment(line)):
        yield line


@pytest.fixture(autouse=True)
def host(line: s3.Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with an empty cache, and an empty bucket; failed calls are repeated at once."""
    s3.heal(line)
    s3.make_bucket(line)
    line.requests.clear()
    monkeypatch.setenv("PP_PRECOMPILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))
    return tmp_path / "cache"


def other_host(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Store:
    monkeypatch.setenv("PP_PRECOMPILE_CACHE", str(folder))
    return open_store(URL, create=False)


def published(store: Store, stages: int = 2) -> Manifest:
    manifest = make_manifest(stages, put=store.blobs.put)
    store.builds.publish(manifest)
    entry = ProgramEntry(
        key=some_digest("k"), blob=next(iter(manifest.blobs().values())), kernels=0
    )
    store.programs.record(entry)
    return manifest


def test_what_one_host_publishes_another_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(URL, create=True)
    store.check_writable()
    manifest = published(store)
    other = other_host(monkeypatch, tmp_path / "other")
    assert other.place == URL
    assert other.root == cache_folder(URL)
    assert other.builds.ids() == [manifest.build_id]
    assert other.builds.read(manifest.build_id) == manifest
    for ref in manifest.blobs().values():
        assert other.blobs.get(ref) == store.blobs.get(ref)
    entry = other.programs.find(some_digest("k"))
    assert entry is not None
    assert set(other.blobs) == set(manifest.blobs())
    assert check_store(other).sound


def test_a_store_that_nobody_wrote_to_is_empty(line: s3.Line) -> None:
    store = existing_store(URL)
    assert store is not None
    assert (store.builds.ids(), list(store.blobs)) == ([], [])
    with pytest.raises(MissingBuildError) as caught:
        store.builds.read(some_digest("b"))
    assert f"{URL}/builds" in str(caught.value)
    with pytest.raises(StoreError, match="PPC203") as missing:
        store.blobs.get(refer(b"none"))
    assert f"{URL}/blobs/" in str(missing.value)


def test_each_object_is_fetched_once_a_host_however_many_ranks_it_has(
    line: s3.Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = published(open_store(URL, create=True))
    monkeypatch.setenv("PP_PRECOMPILE_CACHE", str(tmp_path / "host"))
    line.requests.clear()
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as ranks:
        assert ranks.map(_load_all, [manifest.build_id] * 4) == [len(manifest.blobs())] * 4
    for digest in manifest.blobs():
        assert line.count("GET", digest) == 1
    assert line.count("GET", f"{manifest.build_id}.msgpack") == 1


def _load_all(build_id: str) -> int:
    store = open_store(URL, create=False)
    blobs = store.builds.read(build_id).blobs()  # type: ignore[arg-type]
    return len([store.blobs.get(ref) for ref in blobs.values()])


def test_a_replaced_manifest_is_noticed_when_the_copy_is_no_longer_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(URL, create=True)
    manifest = published(store)
    other = other_host(monkeypatch, tmp_path / "other")
    other.builds.read(manifest.build_id)
    remote_manifest = Remote(URL)
    remote_manifest.remove(("builds", f"{manifest.build_id}.msgpack"))
    assert other.builds.read(manifest.build_id) == manifest
    monkeypatch.setattr(shelf, "FRESH_SECONDS", 0.0)
    with pytest.raises(MissingBuildError):
        other.builds.read(manifest.build_id)


def test_a_damaged_copy_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = open_store(URL, create=True).blobs.put(b"program")
    other = other_host(monkeypatch, tmp_path / "other")
    other.blobs.get(ref)
    other.blobs.path(ref.digest).write_bytes(b"proggam")
    assert other.blobs.get(ref) == b"program"
    assert other.blobs.path(ref.digest).read_bytes() == b"program"


def test_a_damaged_original_is_refused_and_never_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(URL, create=True)
    ref = store.blobs.put(b"program")
    Remote(URL).write(("blobs", ref.digest[:2], ref.digest), b"proggam")
    other = other_host(monkeypatch, tmp_path / "other")
    with pytest.raises(StoreError, match="PPC204") as caught:
        other.blobs.get(ref)
    assert URL in str(caught.value)
    assert not other.blobs.path(ref.digest).exists()
    # Who compiles it again replaces it.
    other.blobs.put(b"program")
    assert other_host(monkeypatch, tmp_path / "third").blobs.get(ref) == b"program"


def test_a_download_goes_on_where_it_broke_off(
    line: s3.Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = open_store(URL, create=True).blobs.put(BIG)
    monkeypatch.setattr(remote, "CHUNK_BYTES", 256 * 1024)
    other = other_host(monkeypatch, tmp_path / "other")
    line.budget = 2 * 1024 * 1024
    with pytest.raises(StoreError) as caught:
        other.blobs.get(ref)
    assert (caught.value.code, caught.value.exit_code) == ("PPC211", 2)
    assert ref.digest in str(caught.value)
    [unfinished] = list(other.root.rglob("*.part"))
    have = unfinished.stat().st_size
    assert 0 < have < len(BIG)
    s3.heal(line)
    line.returned = 0
    assert other.blobs.get(ref) == BIG
    assert line.returned < len(BIG) - have + 100_000
    assert list(other.root.rglob("*.part")) == []


def test_an_unfinished_download_of_something_else_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = open_store(URL, create=True).blobs.put(b"program")
    other = other_host(monkeypatch, tmp_path / "other")
    path = other.blobs.path(ref.digest)
    path.parent.mkdir()
    for left in (b"pro", b"XYZ", b"longer than the program"):
        path.with_name(f".{path.name}.part").write_bytes(left)
        assert other.blobs.get(ref) == b"program"
        path.unlink()


def test_a_server_that_is_gone(line: s3.Line, tmp_path: Path) -> None:
    store = open_store(URL, create=True)
    manifest = published(store)
    line.down = True
    # What this host has is enough to load from.
    for ref in manifest.blobs().values():
        store.blobs.get(ref)
    assert store.builds.read(manifest.build_id) == manifest
    with pytest.raises(StoreError, match="PPC211"):
        store.builds.ids()
    with pytest.raises(StoreError, match="PPC202"):
        store.check_writable()
    with pytest.raises(StoreError, match="PPC211"):
        store.builds.publish(make_manifest(1))


def test_an_upload_that_breaks_off_is_seen_by_nobody_and_can_be_repeated(
    line: s3.Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_store(tmp_path / "source", create=True)
    manifest = published(source, stages=4)
    target = open_store(URL, create=True)
    line.budget = 2500
    with pytest.raises(PrecompileError):
        copy(source, target, [manifest.build_id], jobs=1)
    s3.heal(line)
    assert open_store(URL, create=False).builds.ids() == []
    already = len(list(open_store(URL, create=False).blobs))
    copied = copy(source, target, [manifest.build_id], jobs=3)
    assert (copied.blobs, copied.sent) == (len(manifest.blobs()), len(manifest.blobs()) - already)
    assert copy(source, target, [manifest.build_id]).sent == 0
    other = other_host(monkeypatch, tmp_path / "other")
    assert check_store(other).sound
    assert {key: other.programs.find(key) for key in other.programs} == manifest.entries()


def test_pull_copies_once_and_goes_on(
    line: s3.Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = published(open_store(URL, create=True), stages=3)
    source = other_host(monkeypatch, tmp_path / "other")
    target = open_store(tmp_path / "target", create=True)
    first = next(iter(manifest.blobs().values()))
    line.requests.clear()
    copied = copy(source, target, [manifest.build_id])
    assert copied.sent == len(manifest.blobs())
    assert line.count("GET", first.digest) == 1
    assert check_store(target).sound
    assert target.builds.read(manifest.build_id) == manifest
    # The cache of this host took no second copy of the blobs.
    assert not source.blobs.path(first.digest).exists()
    assert copy(source, target, [manifest.build_id]).sent == 0


def test_between_two_folders(tmp_path: Path) -> None:
    one, other = (open_store(tmp_path / name, create=True) for name in ("one", "other"))
    manifest = published(one)
    assert copy(one, other, [manifest.build_id]).sent == len(manifest.blobs())
    assert other.builds.read(manifest.build_id) == manifest
    assert {key: other.programs.find(key) for key in other.programs} == manifest.entries()


def test_signatures_travel_and_are_checked_from_afar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(tmp_path / "key")
    keys = read_public([tmp_path / "key.pub"])
    source = open_store(tmp_path / "source", create=True)
    manifest = published(source)
    data = source.builds.raw(manifest.build_id)
    source.builds.signatures.add(manifest.build_id, data, read_private(tmp_path / "key"))
    copy(source, open_store(URL, create=True), [manifest.build_id])
    monkeypatch.setenv("PP_PRECOMPILE_CACHE", str(tmp_path / "other"))
    trusting = open_store(URL, create=False, trusted=keys)
    assert trusting.builds.read(manifest.build_id) == manifest


def test_collecting_and_counting(line: s3.Line) -> None:
    store = open_store(URL, create=True)
    manifest = published(store)
    spare = store.blobs.put(b"spare")
    assert usage(store, references(store)).spare_bytes == spare.size
    assert collect(store, Keep()).blobs == 0, "what was just written is young"
    assert collect(store, Keep(), grace=0).blobs == 1
    collect(store, Keep(newest=0), grace=0)
    assert (store.builds.ids(), list(store.blobs)) == ([], [])
    assert manifest.build_id not in store.builds.ids()


def test_a_bucket_that_is_not_there_and_a_protocol_that_nobody_knows() -> None:
    with pytest.raises(StoreError, match="PPC202"):
        open_store("s3://no-such-bucket/x", create=True).check_writable()
    with pytest.raises(UsageError) as caught:
        open_store("nothing://x", create=False)
    assert (caught.value.code, caught.value.exit_code) == ("PPC001", 2)


def test_file_systems_without_whole_uploads_get_them_by_renaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Remote(f"local://{tmp_path}/away")
    names: list[str] = []
    real = place._files.pipe_file
    monkeypatch.setattr(
        place._files, "pipe_file", lambda path, data: (names.append(path), real(path, data))
    )
    place.write(("blobs", "ab", "name"), b"data")
    assert names[0].endswith(".tmp")
    assert [path.name for path in (tmp_path / "away").rglob("*") if path.is_file()] == ["name"]
    assert place.read(("blobs", "ab", "name"), unfinished=tmp_path / "part", limit=9) == b"data"
    assert place.read(("blobs", "ab", "name"), unfinished=tmp_path / "part", limit=2) == b"dat"
    assert [(parts, size) for parts, size, _ in place.items("blobs")] == [
        (("blobs", "ab", "name"), 4)
    ]
