"""Safety: what others could have changed, or is not what it seems, is not loaded from."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.store import reading, safety
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest

ME = os.geteuid()
STRANGER = ME + 1


def status(mode: int, owner: int = ME) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


def folder(mode: int, owner: int = ME) -> os.stat_result:
    return status(stat.S_IFDIR | mode, owner)


SAFE_ROOT = folder(0o755)
SHARED_ROOT = folder(0o1777, 0)
HERE = Path("store")


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775, 0o2770, 0o1777, 0o555])
@pytest.mark.parametrize("owner", [0, ME, STRANGER])
def test_safe_roots(mode: int, owner: int) -> None:
    safety.check_root(folder(mode, owner), HERE)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o702, 0o2777])
def test_a_root_in_which_everyone_can_replace_things(mode: int) -> None:
    with pytest.raises(StoreError) as caught:
        safety.check_root(folder(mode), HERE)
    text = str(caught.value)
    assert text.startswith("PPC208: store is not safe to load code from")
    assert "expected: a folder that not everyone can write" in text
    assert f"found:    {stat.filemode(stat.S_IFDIR | mode)}, owned by user {ME}" in text
    assert "stored programs are code: check what is in the folder, then take 'chmod o-w'" in text


@pytest.mark.parametrize(
    ("found", "root"),
    [
        (folder(0o755), SAFE_ROOT),
        (folder(0o775, STRANGER), SAFE_ROOT),  # a team's store
        (folder(0o755, ME), SHARED_ROOT),
        (folder(0o755, 0), SHARED_ROOT),
        (folder(0o755, STRANGER), folder(0o1777, STRANGER)),
    ],
)
def test_safe_folders(found: os.stat_result, root: os.stat_result) -> None:
    safety.check_folder(found, HERE, root=root)


@pytest.mark.parametrize(
    ("found", "root", "expected"),
    [
        (folder(0o777), SAFE_ROOT, "a folder that not everyone can write"),
        (folder(0o1777), SAFE_ROOT, "a folder that not everyone can write"),
        (folder(0o1777, 0), SHARED_ROOT, "a folder that not everyone can write"),
        (folder(0o755, STRANGER), SHARED_ROOT, "a folder made by this user or the root's owner"),
    ],
)
def test_unsafe_folders(found: os.stat_result, root: os.stat_result, expected: str) -> None:
    with pytest.raises(StoreError) as caught:
        safety.check_folder(found, HERE, root=root)
    assert (caught.value.code, caught.value.expected) == ("PPC208", expected)
    assert caught.value.hint


@pytest.mark.parametrize("owner", [0, ME, STRANGER])
def test_who_may_have_written_a_file(owner: int) -> None:
    safety.check_object(status(stat.S_IFREG | 0o664, owner), HERE)
    with pytest.raises(CorruptError, match="-rw-rw-rw-, writable for everyone"):
        safety.check_object(status(stat.S_IFREG | 0o666, owner), HERE)


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_devices_and_pipes_are_no_objects(kind: int) -> None:
    with pytest.raises(CorruptError, match="expected: a regular file"):
        safety.check_object(status(kind | 0o600), HERE)


@pytest.fixture
def filled(store: Store) -> Store:
    store.builds.publish(make_manifest(1, put=store.blobs.put))
    return store


def load_everything(root: Path) -> None:
    store = open_store(root, create=False)
    for build in store.builds.ids():
        for ref in store.builds.read(build).blobs().values():
            store.blobs.get(ref)


@pytest.mark.parametrize("part", ["", "blobs", "builds", "programs"])
def test_an_unsafe_folder_is_refused_at_opening(filled: Store, part: str) -> None:
    load_everything(filled.root)
    (filled.root / part).chmod(0o777)
    for create in (False, True):
        with pytest.raises(StoreError) as caught:
            open_store(filled.root, create=create)
        assert caught.value.code == "PPC208"
        assert str(filled.root / part) in caught.value.message


@pytest.mark.parametrize("part", ["blobs", "builds", "programs"])
def test_a_linked_folder_is_refused_at_opening(filled: Store, tmp_path: Path, part: str) -> None:
    (filled.root / part).rename(tmp_path / "elsewhere")
    (filled.root / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=f"PPC208: {filled.root / part} is not safe") as caught:
        open_store(filled.root, create=False)
    assert "found:    a link or file" in str(caught.value)
    assert "link to the store's root if need be, never inside it" in str(caught.value)


def a_shard(store: Store) -> Path:
    return store.blobs.path(next(iter(store.blobs))).parent


def test_a_linked_or_open_shard_is_refused_at_reading(filled: Store, tmp_path: Path) -> None:
    shard = a_shard(filled)
    shard.chmod(0o777)
    with pytest.raises(StoreError, match="PPC208"):
        load_everything(filled.root)
    shard.chmod(0o755)
    load_everything(filled.root)
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="PPC208"):
        load_everything(filled.root)


def test_a_link_to_the_store_is_fine(filled: Store, tmp_path: Path) -> None:
    (tmp_path / "mount").symlink_to(filled.root)
    (tmp_path / "indirect").symlink_to(tmp_path / "mount")
    load_everything(tmp_path / "indirect")


def test_a_store_in_a_shared_folder_with_the_sticky_bit(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    store = open_store(tmp_path, create=True)
    store.builds.publish(make_manifest(1, put=store.blobs.put))
    load_everything(tmp_path)


class Os:
    """Stands for ``os`` in the module under test, with some functions replaced."""

    def __init__(self, **instead: Any) -> None:
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@pytest.mark.parametrize(
    ("number", "text"),
    [(errno.EACCES, "Permission denied (EACCES)"), (errno.EIO, "Input/output error (EIO)")],
)
def test_what_cannot_be_read_says_why(
    filled: Store, monkeypatch: pytest.MonkeyPatch, number: int, text: str
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number))

    ref = make_manifest(1).stages[0].programs["forward"].blob
    monkeypatch.setattr(reading, "os", Os(open=refuse))
    with pytest.raises(StoreError) as caught:
        filled.blobs.get(ref)
    assert (caught.value.code, caught.value.exit_code) == ("PPC201", 2)
    assert f"PPC201: cannot read {filled.blobs.path(ref.digest)}" in str(caught.value)
    assert f"found:    {text}" in str(caught.value)
    assert "next:     check the path and its mode, or choose another with" in str(caught.value)
