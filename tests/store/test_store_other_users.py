"""A store of somebody else: it can be read where that is allowed, and nothing in it is changed.

Becomes another user for a while, so it needs root; without it it fails and says so.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pp_precompile.contract.errors import StoreError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.store.fsck import check_store
from pp_precompile.store.gc import Keep, collect
from pp_precompile.store.pins import pin
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest

NOBODY = 65534


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    """Do what follows with the rights of a user who owns nothing."""
    assert os.geteuid() == 0, "this test becomes another user and needs root for it"
    group = os.getegid()
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


@pytest.fixture
def store() -> Iterator[Store]:
    """A store of root that everybody may read; pytest's own folders are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        yield open_store(folder / "store", create=True)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def build(store: Store) -> Manifest:
    manifest = make_manifest(1, put=store.blobs.put)
    store.builds.publish(manifest)
    for path in (store.root, *store.root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return manifest


def test_what_may_be_read_is_loaded_and_nothing_is_changed(store: Store, build: Manifest) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*")}
    with another_user():
        theirs = open_store(store.root, create=False)
        assert check_store(theirs).sound
        assert theirs.builds.read(build.build_id) == build
        for ref in build.blobs().values():
            theirs.blobs.get(ref)
            # What is there already needs no writing.
            assert theirs.blobs.put(theirs.blobs.get(ref)) == ref
        theirs.builds.use(build.build_id)
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*")} == before


WRITES: dict[str, Callable[[Store, Manifest], object]] = {
    "probe": lambda store, _: store.check_writable(),
    "put": lambda store, _: store.blobs.put(b"something new"),
    "publish": lambda store, build: store.builds.publish(build),
    "remove": lambda store, build: store.builds.remove(build.build_id),
    "pin": lambda store, build: pin(store, build.build_id),
    "collect": lambda store, _: collect(store, Keep(newest=0), grace=0),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_may_not_be_written_is_one_error(store: Store, build: Manifest, write: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*")}
    with another_user(), pytest.raises(StoreError) as caught:
        WRITES[write](open_store(store.root, create=False), build)
    assert caught.value.code in ("PPC202", "PPC210")
    assert "(EACCES)" in str(caught.value)
    assert caught.value.exit_code == 2
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*")} == before


@pytest.mark.parametrize("part", ["", "builds", "blobs"])
def test_a_folder_that_may_not_be_read_is_one_error(
    store: Store, build: Manifest, part: str
) -> None:
    (store.root / part).chmod(0o700)
    with another_user(), pytest.raises(StoreError) as caught:
        _load(store.root, build)
    assert caught.value.code == "PPC201"
    assert "(EACCES)" in str(caught.value)


def _load(root: Path, build: Manifest) -> None:
    store = open_store(root, create=False)
    for ref in store.builds.read(build.build_id).blobs().values():
        store.blobs.get(ref)


def test_a_blob_that_may_not_be_read_is_named(store: Store, build: Manifest) -> None:
    ref = next(iter(build.blobs().values()))
    store.blobs.path(ref.digest).chmod(0o600)
    with another_user(), pytest.raises(StoreError, match=ref.digest) as caught:
        open_store(store.root, create=False).blobs.get(ref)
    assert caught.value.code == "PPC201"
