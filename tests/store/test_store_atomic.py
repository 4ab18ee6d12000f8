"""Atomic writes: order of the steps, modes under any umask, and what each errno says."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pp_precompile.contract.errors import StoreError
from pp_precompile.store import atomic


class Recorder:
    """Stands for ``os`` in the module under test; notes the steps, can be told to interfere."""

    def __init__(self, **instead: Any) -> None:
        self.steps: list[str] = []
        self.instead = instead

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if not callable(real) or isinstance(real, type):
            return real

        def call(*args: Any, **keywords: Any) -> Any:
            self.steps.append(name)
            return self.instead.get(name, real)(*args, **keywords)

        return call


def raising(number: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_is_on_the_disk_before_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(atomic, "os", recorder)
    atomic.write(tmp_path / "x", b"data")
    wanted = ["open", "write", "fsync", "close", "replace", "open", "fsync", "close"]
    assert [step for step in recorder.steps if step in wanted] == wanted


def test_new_folders_are_on_the_disk_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(atomic, "os", recorder)
    atomic.write(tmp_path / "a" / "b" / "x", b"data")
    named = [step for step in recorder.steps if step in ("mkdir", "fsync", "replace")]
    assert named == ["mkdir", "fsync", "mkdir", "fsync", "fsync", "replace", "fsync"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "os", Recorder(write=lambda file, data: os.write(file, data[:3])))
    atomic.write(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


@pytest.mark.parametrize(
    ("mask", "file", "folder"),
    [(0o022, 0o644, 0o755), (0o077, 0o640, 0o750), (0o002, 0o664, 0o775), (0o000, 0o664, 0o775)],
    ids=oct,
)
def test_group_may_read_and_others_never_write(
    tmp_path: Path, mask: int, file: int, folder: int
) -> None:
    with umask(mask):
        atomic.write(tmp_path / "new" / "x", b"data")
    assert (mode(tmp_path / "new" / "x"), mode(tmp_path / "new")) == (file, folder)


def test_a_folder_keeps_the_group_of_its_parent(tmp_path: Path) -> None:
    tmp_path.chmod(0o2755)
    with umask(0o077):
        atomic.make_folder(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o2750


def test_a_file_system_without_modes_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(chmod=raising(errno.EPERM))
    monkeypatch.setattr(atomic, "os", recorder)
    with umask(0o077):
        atomic.write(tmp_path / "x", b"data")
    assert "chmod" in recorder.steps
    assert (tmp_path / "x").read_bytes() == b"data"


def test_another_process_makes_the_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(path: Path, mode: int) -> None:
        os.mkdir(path, mode)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(atomic, "os", Recorder(mkdir=mkdir))
    atomic.write(tmp_path / "new" / "x", b"data")
    assert (tmp_path / "new" / "x").read_bytes() == b"data"


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="PPC202"):
        atomic.write(tmp_path / "file" / "x", b"data")


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "x").symlink_to(tmp_path / "victim")
    atomic.write(tmp_path / "x", b"data")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "x").is_symlink()


@pytest.mark.parametrize(
    ("number", "symbol", "advice"),
    [
        (errno.ENOSPC, "ENOSPC", "free some space in the store's folder"),
        (errno.EDQUOT, "EDQUOT", "free some space in the store's folder"),
        (errno.EACCES, "EACCES", "check owner and mode of the store's folder"),
        (errno.EROFS, "EROFS", "check owner and mode of the store's folder"),
        (errno.EIO, "EIO", "check owner and mode of the store's folder"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
def test_a_failed_write_says_why_and_harms_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    number: int,
    symbol: str,
    advice: str,
) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "os", Recorder(**{step: raising(number)}))
        with pytest.raises(StoreError) as caught:
            atomic.write(tmp_path / "x", b"new")
    assert (caught.value.code, caught.value.exit_code) == ("PPC202", 2)
    text = str(caught.value)
    assert text.startswith(f"PPC202: cannot write {tmp_path / 'x'}\n")
    assert "expected: a folder that this user may write, with space left" in text
    assert f"found:    {os.strerror(number)} ({symbol})" in text
    assert f"next:     {advice}, or choose another with --compile.precompile_artifact_dir" in text
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"old"}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_sync_folders_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(atomic, "os", Recorder(fsync=raising(number)))
    atomic.sync_folder(tmp_path)


def test_an_interrupt_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "os", Recorder(write=interrupt))
    with pytest.raises(KeyboardInterrupt):
        atomic.write(tmp_path / "x", b"data")
    assert list(tmp_path.iterdir()) == []


def test_removing_is_done_once_and_no_error_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic.write(tmp_path / "x", b"data")
    recorder = Recorder()
    monkeypatch.setattr(atomic, "os", recorder)
    atomic.remove(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert recorder.steps == ["unlink", "open", "fsync", "close"]
    atomic.remove(tmp_path / "x")
    atomic.remove(tmp_path / "no folder" / "x")


def test_removing_many_waits_once_for_each_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / folder / name for folder in ("a", "b") for name in ("x", "y", "z")]
    for path in paths:
        atomic.write(path, b"data")
    recorder = Recorder()
    monkeypatch.setattr(atomic, "os", recorder)
    atomic.remove_all([*paths, tmp_path / "a" / "not there", tmp_path / "no folder" / "x"])
    assert recorder.steps.count("fsync") == 2
    assert recorder.steps.index("fsync") > max(
        index for index, step in enumerate(recorder.steps) if step == "unlink"
    )
    assert not any(path.exists() for path in paths)


def test_what_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "os", Recorder(unlink=raising(errno.EACCES)))
    with pytest.raises(StoreError, match=r"(?s)PPC202: .*Permission denied \(EACCES\)"):
        atomic.remove(tmp_path / "x")


def test_writability_is_tried_not_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic.check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(atomic, "os", Recorder(write=raising(errno.ENOSPC)))
    with pytest.raises(StoreError, match=r"(?s)PPC202: .*No space left on device \(ENOSPC\)"):
        atomic.check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
