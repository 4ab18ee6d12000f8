"""Locks: who excludes whom, how long one waits, and that a dead process holds nothing."""

import errno
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from pp_precompile.contract.errors import StoreError
from pp_precompile.store import lock
from pp_precompile.store.gc import Keep, collect
from pp_precompile.store.store import Store
from tests.manifests import some_digest


def attempt(root: Path, *, alone: bool, byte: int = lock.COLLECTING) -> bool:
    try:
        with lock.hold(root, byte, alone=alone, seconds=0, what="test"):
            return True
    except StoreError as error:
        if error.code != "PPC210":
            raise
        return False


@pytest.mark.parametrize(
    ("held_alone", "wanted_alone", "possible"),
    [(True, True, False), (True, False, False), (False, True, False), (False, False, True)],
)
def test_who_excludes_whom(
    tmp_path: Path, held_alone: bool, wanted_alone: bool, possible: bool
) -> None:
    with lock.hold(tmp_path, lock.COLLECTING, alone=held_alone, seconds=0, what="test"):
        assert attempt(tmp_path, alone=wanted_alone) is possible
        assert attempt(tmp_path, alone=True, byte=lock.byte_of(some_digest("other")))
    assert attempt(tmp_path, alone=True)


def test_objects_have_bytes_that_are_never_the_collectors() -> None:
    digests = [some_digest(str(n)) for n in range(100)]
    numbers = {lock.byte_of(digest) for digest in digests}
    assert len(numbers) == 100
    assert all(0 < number < 2**63 for number in numbers)


def test_a_waiter_goes_on_when_the_holder_is_done(tmp_path: Path) -> None:
    entered, done = threading.Event(), threading.Event()

    def holder() -> None:
        with lock.hold(tmp_path, 5, alone=True, seconds=0, what="hold"):
            entered.set()
            done.wait(30)

    thread = threading.Thread(target=holder)
    thread.start()
    assert entered.wait(30)
    assert not attempt(tmp_path, alone=True, byte=5)
    threading.Timer(0.2, done.set).start()
    with lock.hold(tmp_path, 5, alone=True, seconds=30, what="wait"):
        assert done.is_set()
    thread.join()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with lock.hold(tmp_path, lock.COLLECTING, alone=True, seconds=0, what="hold"):
            os.write(write, b"held")
            time.sleep(60)
        os._exit(0)
    assert os.read(read, 4) == b"held"
    assert not attempt(tmp_path, alone=False)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert attempt(tmp_path, alone=True)


def test_the_error_says_what_waits_for_what(tmp_path: Path) -> None:
    with (
        lock.hold(tmp_path, lock.COLLECTING, alone=True, seconds=0, what="hold"),
        pytest.raises(StoreError) as caught,
        lock.writing(tmp_path, seconds=0),
    ):
        pass
    assert caught.value.code == "PPC210"
    assert f"cannot write: another process works on {tmp_path}" in str(caught.value)
    assert str(tmp_path / "lock") in str(caught.value)


def test_without_locks_writers_go_on_and_collectors_refuse(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "fcntl", no_locks)
    ref = store.blobs.put(b"program")
    assert store.blobs.get(ref) == b"program"
    with pytest.raises(StoreError) as caught:
        collect(store, Keep(), grace=0)
    assert (caught.value.code, caught.value.exit_code) == ("PPC210", 2)
    assert "No locks available (ENOLCK)" in str(caught.value)
    assert store.blobs.has(ref)
