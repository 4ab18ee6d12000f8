"""What a host believes of its cache, and what it looks up where the store lies.

The remote store is fsspec's in memory; ``test_store_remote`` has a real server.
"""

import os
import stat
import time
from datetime import timedelta
from pathlib import Path

import fsspec
import msgspec
import pytest

from pp_precompile.contract.errors import CorruptError, StoreError, UntrustedError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.contract.signature import MAX_SIGNATURES_BYTES, Signature
from pp_precompile.store import safety
from pp_precompile.store.fsck import check_store
from pp_precompile.store.gc import GRACE_SECONDS, Keep, collect
from pp_precompile.store.keys import PrivateKey, generate, read_private
from pp_precompile.store.location import cache_folder
from pp_precompile.store.references import references
from pp_precompile.store.remote import Remote
from pp_precompile.store.shelf import BLOBS, BUILDS
from pp_precompile.store.signatures import Received, Trust
from pp_precompile.store.store import Store, open_store
from pp_precompile.store.transfer import copy
from pp_precompile.store.usage import usage
from tests.manifests import make_manifest, some_digest

URL = "memory://bucket/store"

HOUR = 3600.0


@pytest.fixture(autouse=True)
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty remote store, and a host with an empty cache."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    monkeypatch.setenv("PP_PRECOMPILE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def key(tmp_path: Path) -> PrivateKey:
    generate(tmp_path / "key")
    return read_private(tmp_path / "key")


@pytest.fixture
def host(key: PrivateKey, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    """Another host, which trusts the key."""
    with monkeypatch.context() as patch:
        patch.setenv("PP_PRECOMPILE_CACHE", str(tmp_path / "host"))
        return open_store(URL, create=False, trusted=[key.public])


def publish(store: Store, key: PrivateKey | None = None, modules: str = "layers.0") -> Manifest:
    """Publish a build; with other ``modules`` its bytes differ, and not its id."""
    manifest = make_manifest(2, put=store.blobs.put)
    first = msgspec.structs.replace(manifest.stages[0], modules=(modules,))
    manifest = msgspec.structs.replace(manifest, stages=(first, *manifest.stages[1:]))
    store.builds.publish(manifest)
    if key is not None:
        store.builds.signatures.add(manifest.build_id, manifest.to_bytes(), key)
    return manifest


def set_age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.mark.parametrize("ages", [(HOUR, HOUR), (HOUR, 0.0), (0.0, HOUR)])
def test_a_build_that_was_signed_and_published_again_is_read(
    key: PrivateKey, host: Store, ages: tuple[float, float]
) -> None:
    """However old the copies of the manifest and of its signatures are."""
    store = open_store(URL, create=True)
    old = publish(store, key)
    assert host.builds.read(old.build_id) == old
    new = publish(store, key, modules="new")
    path = host.builds.path(old.build_id)
    for ours, age in zip((path, path.with_suffix(".sig")), ages, strict=True):
        set_age(ours, age)
    assert host.builds.read(old.build_id) in (old, new)
    set_age(path, HOUR)
    assert host.builds.read(old.build_id) == new


def test_a_build_that_was_published_again_unsigned_is_refused(key: PrivateKey, host: Store) -> None:
    store = open_store(URL, create=True)
    old = publish(store, key)
    assert host.builds.read(old.build_id) == old
    publish(store, modules="new")
    set_age(host.builds.path(old.build_id), HOUR)
    with pytest.raises(UntrustedError, match="PPC209"):
        host.builds.read(old.build_id)


def test_a_copy_from_the_future_is_not_fresh_for_ever(host: Store) -> None:
    store = open_store(URL, create=True)
    old = publish(store)
    other = Store(host.root, host.remote)
    other.builds.read(old.build_id)
    new = publish(store, modules="new")
    set_age(other.builds.path(old.build_id), -HOUR)
    assert other.builds.read(old.build_id) == new


def damage(store: Store, manifest: Manifest) -> bytes:
    """Flip a bit of a blob where the store lies; returns the blob's bytes as they were."""
    ref = next(iter(manifest.blobs().values()))
    data = store.blobs.get(ref)
    Remote(URL).write(BLOBS.parts(ref.digest), bytes([data[0] ^ 1]) + data[1:])
    return data


def test_fsck_reads_what_lies_there_and_no_copy() -> None:
    store = open_store(URL, create=True)
    manifest = publish(store)
    assert check_store(store).sound
    for ref in manifest.blobs().values():
        store.blobs.get(ref)
    damage(store, manifest)
    Remote(URL).write(BUILDS.parts(manifest.build_id), b"\x80")
    assert {finding.code for finding in check_store(store).findings} == {"PPC204", "PPC205"}
    assert list(store.root.rglob("*.part")) == []


def test_push_believes_sizes_unless_told_to_verify(tmp_path: Path) -> None:
    source = open_store(tmp_path / "source", create=True)
    manifest = publish(source)
    target = open_store(URL, create=True)
    copy(source, target, [manifest.build_id])
    damage(source, manifest)
    assert copy(source, target, [manifest.build_id]).sent == 0
    assert not check_store(target).sound
    key = next(iter(manifest.entries()))
    Remote(URL).write(("programs", key[:2], f"{key}.msgpack"), b"\x80")
    assert copy(source, target, [manifest.build_id], verify=True).sent == 1
    assert check_store(target).sound
    assert copy(source, target, [manifest.build_id], verify=True).sent == 0


def test_entries_are_made_from_the_manifest(tmp_path: Path) -> None:
    """The source's index is not signed: a stranger's program under a key goes nowhere."""
    source = open_store(tmp_path / "source", create=True)
    manifest = publish(source)
    one, *_ = manifest.entries()
    other = list(manifest.blobs().values())[-1]
    for key in (one, some_digest("key")):
        source.programs.record(ProgramEntry(key=key, blob=other, kernels=9))
    target = open_store(tmp_path / "target", create=True)
    copy(source, target, [manifest.build_id])
    assert {key: target.programs.find(key) for key in target.programs} == manifest.entries()
    copy(target, source, [manifest.build_id])
    found = source.programs.find(one)
    assert found is not None
    assert found.kernels == 9, "what is known is not replaced"


def sign(store: Store, manifest: Manifest, key: PrivateKey) -> Signature:
    return store.builds.signatures.add(manifest.build_id, manifest.to_bytes(), key)


@pytest.fixture
def other_key(tmp_path: Path) -> PrivateKey:
    generate(tmp_path / "other")
    return read_private(tmp_path / "other")


def test_signatures_of_the_same_bytes_are_merged_and_others_go(
    tmp_path: Path, key: PrivateKey, other_key: PrivateKey
) -> None:
    source = open_store(tmp_path / "source", create=True)
    target = open_store(URL, create=True)
    manifest = publish(source, key)
    publish(target)
    theirs = sign(target, manifest, other_key)
    copy(source, target, [manifest.build_id])
    assert set(target.builds.signatures.of(manifest.build_id)) == {
        theirs,
        sign(source, manifest, key),
    }
    new = publish(source, key, modules="new")
    copy(source, target, [manifest.build_id])
    assert target.builds.signatures.of(new.build_id) == (sign(source, new, key),)
    publish(source)
    copy(source, target, [manifest.build_id])
    assert manifest.build_id not in target.builds.signatures


def test_a_worthless_signature_replaces_no_other(key: PrivateKey, other_key: PrivateKey) -> None:
    manifest = make_manifest(1)
    good = key.sign(manifest.manifest_id)
    bad = msgspec.structs.replace(good, value=bytes(64))
    trust = Trust((key.public,))

    def merged(there: Signature, new: Signature, **how: object) -> tuple[Signature, ...]:
        received = Received(signatures=(new,), **how)  # type: ignore[arg-type]
        return received.beside([there], manifest.manifest_id)

    assert merged(good, bad) == merged(good, bad, trust=trust) == (good,)
    assert merged(bad, good, trust=trust) == merged(bad, good, replace=True) == (good,)
    many = [
        Signature(key=some_digest(str(number)), algorithm="x", value=bytes(1000))
        for number in range(50)
    ]
    received = Received(signatures=(*many, good), trust=trust)
    kept = received.beside([other_key.sign(manifest.manifest_id)], manifest.manifest_id)
    assert good in kept
    assert len(many) > len(kept) > MAX_SIGNATURES_BYTES // 1100 - 2


def test_a_build_is_never_seen_before_its_signature(
    tmp_path: Path, key: PrivateKey, host: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_store(tmp_path / "source", create=True)
    manifest = publish(source, key)
    target = open_store(URL, create=True)
    written: list[str] = []
    real = Remote.write

    def write(remote: Remote, parts: tuple[str, ...], data: bytes) -> None:
        written.append(parts[-1])
        if len(written) > 1 and written[-2].endswith(".sig"):
            # Of a copy that broke off here, nobody sees anything.
            assert check_store(target).sound
            assert target.builds.ids() == []
        real(remote, parts, data)

    monkeypatch.setattr(Remote, "write", write)
    copy(source, target, [manifest.build_id])
    assert written[-2:] == [f"{manifest.build_id}.sig", f"{manifest.build_id}.msgpack"]
    assert host.builds.read(manifest.build_id) == manifest


def test_a_cache_is_for_its_owner_alone() -> None:
    root = open_store(URL, create=True).root
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert open_store(URL, create=False).root == root


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_cache_that_others_can_write_is_refused(mode: int) -> None:
    root = open_store(URL, create=True).root
    root.chmod(mode)
    with pytest.raises(StoreError, match="PPC208") as caught:
        open_store(URL, create=False)
    assert "PP_PRECOMPILE_CACHE" in str(caught.value)


def test_a_cache_that_another_user_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = cache_folder(URL)
    root.mkdir(parents=True, mode=0o755)
    root.chmod(0o755)
    monkeypatch.setattr(safety.os, "geteuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(StoreError, match="PPC208"):
        open_store(URL, create=False)
    assert list(root.iterdir()) == []


def test_a_link_in_a_cache_s_place_is_refused(tmp_path: Path) -> None:
    root = cache_folder(URL)
    root.parent.mkdir(parents=True)
    (tmp_path / "mine").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "mine")
    with pytest.raises(StoreError, match="PPC208"):
        open_store(URL, create=False)
    assert list((tmp_path / "mine").iterdir()) == []


def uploaded(seconds_ago: float, folder: str = "") -> None:
    """Make everything below a folder of the remote store that old."""
    files = fsspec.filesystem("memory")
    for path, file in files.store.items():
        if path.startswith(f"/bucket/store/{folder}"):
            file.created -= timedelta(seconds=seconds_ago)


def test_a_second_collector_leaves_what_was_freed_a_moment_ago(host: Store) -> None:
    """The blobs are old, but the time of grace begins when their build goes."""
    store = open_store(URL, create=True)
    manifest = publish(store)
    uploaded(2 * GRACE_SECONDS)
    read = Store(host.root, host.remote).builds.read(manifest.build_id)
    planned = collect(store, Keep(newest=0), dry_run=True)
    assert (planned.builds, planned.waiting) == ([manifest.build_id], len(manifest.blobs()))
    assert store.builds.ids() == [manifest.build_id]
    for _ in range(3):
        assert collect(store, Keep(newest=0)).blobs == 0
    assert store.builds.ids() == []
    for ref in read.blobs().values():
        host.blobs.get(ref)
    uploaded(GRACE_SECONDS / 2, "freed")
    assert collect(store, Keep()).blobs == 0
    uploaded(GRACE_SECONDS, "freed")
    assert collect(store, Keep()).blobs == len(manifest.blobs())
    assert fsspec.filesystem("memory").find("/bucket/store") == []


def test_a_build_that_came_back_and_goes_again_has_its_time_again() -> None:
    store = open_store(URL, create=True)
    manifest = publish(store)
    collect(store, Keep(newest=0))
    publish(store)
    uploaded(2 * GRACE_SECONDS)
    assert collect(store, Keep()).blobs == 0
    collect(store, Keep(newest=0))
    swept = collect(store, Keep(newest=0))
    assert (swept.blobs, swept.waiting) == (0, len(manifest.blobs()))


def test_a_damaged_record_keeps_everything() -> None:
    store = open_store(URL, create=True)
    publish(store)
    uploaded(2 * GRACE_SECONDS)
    collect(store, Keep(newest=0))
    [path] = fsspec.filesystem("memory").find("/bucket/store/freed")
    fsspec.filesystem("memory").pipe_file(path, b"\x80")
    with pytest.raises(CorruptError, match="PPC204"):
        collect(store, Keep())
    assert len(list(store.blobs)) == 4
    [finding] = check_store(store).findings
    assert (finding.code, "freed" in finding.expected) == ("PPC204", True)


def test_records_of_builds_that_went_are_checked_and_counted() -> None:
    store = open_store(URL, create=True)
    manifest = publish(store)
    assert usage(store, references(store)).freed_bytes == 0
    collect(store, Keep(newest=0))
    found = usage(store, references(store))
    assert (found.freed_bytes, found.manifest_bytes) == (len(manifest.to_bytes()), 0)
    memory = fsspec.filesystem("memory")
    assert found.total_bytes == sum(map(memory.size, memory.find("/bucket/store")))
    assert check_store(store).sound


def test_collecting_goes_by_what_lies_there_now(host: Store) -> None:
    """Not by this host's copy of a manifest that was replaced since."""
    store = open_store(URL, create=True)
    publish(store)
    reader = Store(host.root, host.remote)
    assert len(references(reader).builds) == 1
    added = store.blobs.put(b"of the new one")
    new = publish(store, modules="new")
    stage = new.stages[0]
    programs = {
        role: msgspec.structs.replace(program, blob=added)
        for role, program in stage.programs.items()
    }
    stage = msgspec.structs.replace(stage, programs=programs)
    store.builds.publish(msgspec.structs.replace(new, stages=(stage, *new.stages[1:])))
    uploaded(2 * GRACE_SECONDS)
    collect(reader, Keep())
    assert added.digest in set(store.blobs)
    assert check_store(store).sound
