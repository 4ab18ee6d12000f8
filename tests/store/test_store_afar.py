"""What a host believes of its cache, and what it looks up where the store lies.

The remote store is fsspec's in memory; ``test_store_remote`` has a real server.
"""

import os
import time
from pathlib import Path

import fsspec
import msgspec
import pytest

from pp_precompile.contract.errors import UntrustedError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.contract.signature import MAX_SIGNATURES_BYTES, Signature
from pp_precompile.store.fsck import check_store
from pp_precompile.store.keys import PrivateKey, generate, read_private
from pp_precompile.store.remote import Remote
from pp_precompile.store.shelf import BLOBS, BUILDS
from pp_precompile.store.signatures import Received, Trust
from pp_precompile.store.store import Store, open_store
from pp_precompile.store.transfer import copy
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
