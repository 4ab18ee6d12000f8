"""A writer that fails, or dies, at any step: readers see the old or the whole new object.

The steps are counted, not listed: every call that the writer makes to the operating system fails
once, so a step that is added to the code is covered without a line here.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pp_precompile.contract.errors import PrecompileError, StoreError
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store import atomic
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest, refer, some_digest

STEPS = ("open", "fstat", "chmod", "write", "fsync", "close", "replace", "mkdir", "stat", "unlink")


class FaultyOs:
    """Stands for ``os``; the call with number ``fails`` (from 0) raises ``error`` instead.

    With ``dies``, so does every later call, as if the process had been killed there.
    """

    def __init__(self, fails: int | None, error: BaseException, *, dies: bool) -> None:
        self.fails, self.error, self.dies = fails, error, dies
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in STEPS:
            return real

        def call(*args: Any, **keywords: Any) -> Any:
            number = len(self.calls)
            self.calls.append(name)
            failed = self.fails is not None and (
                number >= self.fails if self.dies else number == self.fails
            )
            if failed and name != "close":
                raise self.error
            # A file is closed even where closing reports an error.
            result = real(*args, **keywords)
            if failed:
                raise self.error
            return result

        return call


@dataclass(frozen=True)
class Case:
    """A write, and what a reader may see before and after it."""

    prepare: Callable[[Store], object]
    write: Callable[[Store], object]
    read: Callable[[Store], object]


REF = refer(b"program")
OLD, NEW = (ProgramEntry(key=some_digest("k"), blob=REF, kernels=n) for n in (1, 2))
OLD_BUILD = make_manifest(1)
NEW_BUILD = msgspec.structs.replace(
    OLD_BUILD, stages=(msgspec.structs.replace(OLD_BUILD.stages[0], modules=("new",)),)
)


def put_all(store: Store) -> None:
    make_manifest(1, put=store.blobs.put)


def publish_old(store: Store) -> None:
    put_all(store)
    store.builds.publish(OLD_BUILD)


def publish_new(store: Store) -> None:
    put_all(store)
    store.builds.publish(NEW_BUILD)


def damage(store: Store) -> None:
    store.blobs.put(b"program")
    store.blobs.path(REF.digest).write_bytes(b"prog")


def record(store: Store, entry: ProgramEntry) -> None:
    store.blobs.put(b"program")
    store.programs.record(entry)


CASES = {
    "first blob": Case(
        prepare=lambda store: None,
        write=lambda store: store.blobs.put(b"program"),
        read=lambda store: store.blobs.get(REF),
    ),
    "damaged blob": Case(
        prepare=damage,
        write=lambda store: store.blobs.put(b"program"),
        read=lambda store: store.blobs.get(REF),
    ),
    "first entry": Case(
        prepare=lambda store: store.blobs.put(b"program"),
        write=lambda store: store.programs.record(NEW),
        read=lambda store: store.programs.find(NEW.key),
    ),
    "entry over entry": Case(
        prepare=lambda store: record(store, OLD),
        write=lambda store: store.programs.record(NEW),
        read=lambda store: store.programs.find(NEW.key),
    ),
    "first build": Case(
        prepare=put_all,
        write=lambda store: store.builds.publish(NEW_BUILD),
        read=lambda store: store.builds.read(NEW_BUILD.build_id),
    ),
    "build over build": Case(
        prepare=publish_old,
        write=lambda store: store.builds.publish(NEW_BUILD),
        read=lambda store: store.builds.read(NEW_BUILD.build_id),
    ),
    "whole build": Case(
        prepare=lambda store: None,
        write=publish_new,
        read=lambda store: store.builds.read(NEW_BUILD.build_id),
    ),
    "removal": Case(
        prepare=publish_old,
        write=lambda store: store.builds.remove(OLD_BUILD.build_id),
        read=lambda store: store.builds.read(OLD_BUILD.build_id),
    ),
}


def seen(case: Case, store: Store) -> object:
    """What a reader gets: the object, or the code of the error."""
    try:
        return case.read(store)
    except PrecompileError as error:
        return error.code


def leftovers(store: Store) -> list[Path]:
    return list(store.root.rglob(".*.tmp"))


def states(case: Case, folder: Path) -> tuple[object, object]:
    """What a reader gets before and after the write, when nothing fails."""
    store = open_store(folder / "states", create=True)
    case.prepare(store)
    before = seen(case, store)
    case.write(store)
    return before, seen(case, store)


def steps(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    store = open_store(folder / "steps", create=True)
    case.prepare(store)
    watched = FaultyOs(None, OSError(), dies=False)
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "os", watched)
        case.write(store)
    return watched.calls


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()],
    ids=["full", "interrupt"],
)
@pytest.mark.parametrize("dies", [False, True], ids=["fails", "dies"])
def test_every_step_may_fail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    error: BaseException,
    dies: bool,
) -> None:
    case = CASES[name]
    allowed = states(case, tmp_path)
    calls = steps(case, tmp_path, monkeypatch)
    for number, step in enumerate(calls):
        store = open_store(tmp_path / str(number), create=True)
        case.prepare(store)
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "os", FaultyOs(number, error, dies=dies))
            with pytest.raises((StoreError, KeyboardInterrupt)) as caught:
                case.write(store)
        place = f"call {number}, {step}"
        if isinstance(caught.value, StoreError):
            assert caught.value.code == "PPC202", place
            assert "No space left on device (ENOSPC)" in str(caught.value), place
        assert seen(case, store) in allowed, place
        if not dies:
            assert leftovers(store) == [], place
        case.write(store)
        assert seen(case, store) == allowed[1], place


def test_the_steps_are_the_ones_that_can_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the module under test to call the system past the stand-in, nothing would be shown."""
    calls = steps(CASES["first blob"], tmp_path, monkeypatch)
    for step in ("open", "write", "fsync", "replace", "mkdir"):
        assert step in calls
    assert calls.count("fsync") == 3  # the new folder's parent, the file, its folder


def test_a_dead_writer_leaves_what_readers_pass_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, create=True)
    store.blobs.put(b"other")
    before = list(store.blobs)
    calls = steps(CASES["first blob"], tmp_path / "counted", monkeypatch)
    with monkeypatch.context() as patch:
        died = KeyboardInterrupt()
        patch.setattr(atomic, "os", FaultyOs(calls.index("replace"), died, dies=True))
        with pytest.raises(KeyboardInterrupt):
            store.blobs.put(b"program")
    assert len(leftovers(store)) == 1
    assert list(store.blobs) == before
    assert not store.blobs.has(REF)


def test_what_is_stored_survives_a_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_old(store)
    refs = OLD_BUILD.blobs().values()
    contents = {ref.digest: store.blobs.get(ref) for ref in refs}

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    class FullOs(FaultyOs):
        write = staticmethod(full)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "os", FullOs(None, OSError(), dies=False))
        for write in (
            lambda: store.blobs.put(b"more"),
            lambda: store.programs.record(NEW),
            lambda: store.builds.publish(NEW_BUILD),
            store.check_writable,
        ):
            with pytest.raises(StoreError, match="PPC202"):
                write()
    assert store.builds.read(OLD_BUILD.build_id) == OLD_BUILD
    assert {ref.digest: store.blobs.get(ref) for ref in refs} == contents
    assert leftovers(store) == []
