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
from pp_precompile.store.keys import PrivateKey, generate, read_private
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest

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
    for copy, age in zip((path, path.with_suffix(".sig")), ages, strict=True):
        set_age(copy, age)
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
