"""Opening a store: what is one, what is not, and what stays untouched."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pp_precompile.contract.errors import StoreError
from pp_precompile.store import atomic, lock, pins, shelf
from pp_precompile.store.shelf import FREED, KINDS, SIGNATURES
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest, some_digest
from tests.pages import quoted, table


def test_creating_makes_the_folders_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    open_store(root, create=True)
    assert sorted(path.name for path in root.iterdir()) == ["blobs", "builds", "programs"]
    assert open_store(str(root), create=False).root == root


def test_creating_twice_keeps_what_is_there(store: Store) -> None:
    manifest = make_manifest(1, put=store.blobs.put)
    store.builds.publish(manifest)
    again = open_store(store.root, create=True)
    assert again.builds.read(manifest.build_id) == manifest


def test_files_lie_where_the_page_says() -> None:
    rows = table("format.md", "object", "path below the store's folder", "bytes")
    digest = some_digest("x")
    *objects, (pin_path, _), (lock_path, _) = rows.values()
    assert [quoted(path) for path in (pin_path, lock_path)] == [
        [f"{pins.FOLDER}/abcdef…"],
        [lock.FILE],
    ]
    for kind, (path, _) in zip((*KINDS, SIGNATURES, FREED), objects, strict=True):
        [template] = quoted(path)
        wanted = template.replace("abcdef…", digest).replace("/ab/", f"/{digest[:2]}/")
        assert "/".join(kind.parts(digest)) == wanted


def refused(path: Path, *, create: bool = False) -> StoreError:
    with pytest.raises(StoreError) as caught:
        open_store(path, create=create)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    error = refused(tmp_path / "gone")
    assert error.code == "PPC201"
    text = str(error)
    assert text.startswith(f"PPC201: {tmp_path / 'gone'} is not a store")
    assert "expected: a folder with a folder 'builds' in it" in text
    assert "found:    no such folder" in text
    assert "next:     check the path, or build into it first" in text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert (error.code, error.found) == ("PPC201", "a folder without it")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    error = refused(tmp_path / "file")
    assert error.code == "PPC201"
    assert "Not a directory (ENOTDIR)" in str(error)
    assert refused(tmp_path / "file", create=True).code == "PPC202"


def test_a_store_whose_empty_folders_were_not_copied(store: Store) -> None:
    manifest = make_manifest(1, put=store.blobs.put)
    store.builds.publish(manifest)
    (store.root / "programs").rmdir()
    copy = open_store(store.root, create=False)
    assert copy.builds.read(manifest.build_id) == manifest
    assert list(copy.programs) == []
    assert copy.programs.find(some_digest("key")) is None


class Os:
    """Stands for ``os`` in the module under test, with some functions replaced."""

    def __init__(self, **instead: Any) -> None:
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def raising(number: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_place_where_nothing_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(atomic, "os", Os(mkdir=raising(number)))
    error = refused(tmp_path / "store", create=True)
    assert error.code == "PPC202"
    assert f"cannot write {tmp_path / 'store'}" in str(error)
    assert os.strerror(number) in str(error)


def test_a_read_only_store_can_be_opened_for_writing_and_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = make_manifest(1, put=store.blobs.put)
    store.builds.publish(manifest)
    refuse = raising(errno.EROFS)
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **keywords: Any) -> int:
        if flags & (os.O_WRONLY | os.O_CREAT):
            refuse()
        return real(path, flags, *rest, **keywords)

    monkeypatch.setattr(atomic, "os", Os(open=read_only, mkdir=refuse, replace=refuse))
    mounted = open_store(store.root, create=True)
    assert mounted.builds.read(manifest.build_id) == manifest
    with pytest.raises(StoreError, match=r"(?s)PPC202.*Read-only file system \(EROFS\)"):
        mounted.check_writable()
    with pytest.raises(StoreError, match=r"(?s)PPC202.*Read-only file system \(EROFS\)"):
        mounted.builds.publish(manifest)
    # What is there already needs no writing.
    assert make_manifest(1, put=mounted.blobs.put) == manifest


def test_a_folder_that_cannot_be_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "os", Os(listdir=raising(errno.EACCES)))
    with pytest.raises(StoreError, match=r"(?s)PPC201: cannot read .*builds\n.*EACCES"):
        store.builds.ids()


def test_a_size_that_cannot_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = store.blobs.put(b"x")
    monkeypatch.setattr(shelf, "os", Os(stat=raising(errno.EIO)))
    with pytest.raises(StoreError, match=r"(?s)PPC201: cannot read .*EIO"):
        store.blobs.has(ref)


def test_a_writable_store_stays_as_it_was(store: Store) -> None:
    store.check_writable()
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_all_that_is_made_is_open_to_the_group_and_closed_to_others(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        store = open_store(tmp_path / "store", create=True)
        store.builds.publish(make_manifest(2, put=store.blobs.put))
    finally:
        os.umask(before)
    modes = {
        path.is_dir(): stat.S_IMODE(path.stat().st_mode)
        for path in (store.root, *store.root.rglob("*"))
    }
    assert modes == {True: 0o750, False: 0o640}


def test_the_store_imports_no_torch() -> None:
    check = (
        "import sys, pp_precompile.store.store, pp_precompile.store.location;"
        "sys.exit(' '.join({'torch', 'torchtitan', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
