"""Real file systems that are full, out of inodes or read-only: nothing that is there is harmed.

Mounts small ones, so it needs the rights to; without them it fails and says so.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pp_precompile.contract.errors import StoreError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.store.fsck import check_store
from pp_precompile.store.gc import Keep, collect
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest


def mount(folder: Path, options: str) -> None:
    words = ["mount", "-t", "tmpfs", "-o", options, "pp_precompile-test", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (
        f"this test mounts small file systems and needs root for it: {done.stderr}"
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB and 40 inodes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "size=1M,nr_inodes=40,mode=755")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=60)


@pytest.fixture
def build(disk: Path) -> Manifest:
    store = open_store(disk / "store", create=True)
    manifest = make_manifest(1, put=store.blobs.put)
    store.builds.publish(manifest)
    return manifest


def opened(disk: Path) -> Store:
    return open_store(disk / "store", create=False)


def unharmed(store: Store, build: Manifest) -> bool:
    return check_store(store).sound and store.builds.read(build.build_id) == build


def test_a_full_disk(disk: Path, build: Manifest) -> None:
    store = opened(disk)
    with pytest.raises(StoreError) as caught:
        store.blobs.put(os.urandom(2 * 1024 * 1024))
    assert (caught.value.code, caught.value.exit_code) == ("PPC202", 2)
    assert "(ENOSPC)" in str(caught.value)
    assert "free some space" in str(caught.value)
    assert unharmed(store, build)
    assert check_store(store).leftovers == 0
    # What failed left its space free again.
    assert store.blobs.put(os.urandom(500 * 1024)).size == 500 * 1024


def test_no_inode_left(disk: Path, build: Manifest) -> None:
    store = opened(disk)
    with pytest.raises(StoreError) as caught:
        list(map(store.blobs.put, (str(number).encode() for number in range(100))))
    assert "(ENOSPC)" in str(caught.value)
    with pytest.raises(StoreError, match="PPC202"):
        store.check_writable()
    assert unharmed(store, build)
    # Deleting needs no inode, so that a full store can be emptied.
    assert collect(store, Keep(), grace=0).blobs > 0
    store.check_writable()


def test_a_read_only_disk(disk: Path, build: Manifest) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=60)
    try:
        store = opened(disk)
        assert unharmed(store, build)
        store.builds.use(build.build_id)
        for write in (
            lambda: store.blobs.put(b"more"),
            lambda: store.builds.publish(build),
            lambda: collect(store, Keep(), grace=0),
            store.check_writable,
        ):
            with pytest.raises(StoreError) as caught:
                write()
            assert caught.value.code in ("PPC202", "PPC210")
            assert "(EROFS)" in str(caught.value)
            assert caught.value.exit_code == 2
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True, timeout=60)
