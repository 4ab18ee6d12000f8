"""Writers that are killed (SIGKILL) before each of their file operations in turn.

The store is left as the kernel leaves it: no handler, no clean-up, no buffered close.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store import atomic, pack, transfer
from pp_precompile.store.fsck import check_store
from pp_precompile.store.gc import Keep, collect
from pp_precompile.store.keys import generate, read_private
from pp_precompile.store.pack import unpack
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest, some_digest
from tests.store.test_store_faults import STEPS

BUILD = make_manifest(1)


class KillingOs:
    """Stands for ``os``; kills the process before the call with number ``fatal`` (from 0)."""

    def __init__(self, fatal: int) -> None:
        self.fatal, self.count = fatal, 0

    def __getattr__(self, name: str) -> object:
        real = getattr(os, name)
        if name not in STEPS:
            return real

        def call(*args: object, **keywords: object) -> object:
            if self.count == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            self.count += 1
            return real(*args, **keywords)

        return call


def publish(store: Store, elsewhere: Path) -> None:
    manifest = make_manifest(1, put=store.blobs.put)
    ref = next(iter(manifest.blobs().values()))
    store.programs.record(ProgramEntry(key=some_digest("k"), blob=ref, kernels=0))
    store.builds.publish(manifest)


def copy(store: Store, elsewhere: Path) -> None:
    transfer.copy(open_store(elsewhere / "source", create=False), store, [BUILD.build_id], jobs=1)


def unpack_file(store: Store, elsewhere: Path) -> None:
    unpack(elsewhere / "build.tar", store)


def sign(store: Store, elsewhere: Path) -> None:
    data = store.builds.raw(BUILD.build_id)
    store.builds.signatures.add(BUILD.build_id, data, read_private(elsewhere / "key"))


def collect_all(store: Store, elsewhere: Path) -> None:
    collect(store, Keep(newest=0), grace=0)


WRITES: dict[str, tuple[bool, Callable[[Store, Path], None]]] = {
    "publish": (False, publish),
    "copy": (False, copy),
    "unpack": (False, unpack_file),
    "sign": (True, sign),
    "collect": (True, collect_all),
}
"""By name: whether the build is there already, and what is killed."""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A store, a packed build and a key to work with."""
    source = open_store(tmp_path / "source", create=True)
    publish(source, tmp_path)
    pack.pack(source, BUILD.build_id, tmp_path / "build.tar")
    generate(tmp_path / "key")
    return tmp_path


def survived(write: Callable[[Store, Path], None], store: Store, place: Path, fatal: int) -> bool:
    """Run ``write`` in a child that dies at that step; returns whether it came to its end."""
    child = os.fork()
    if child == 0:
        atomic.os = KillingOs(fatal)  # type: ignore[assignment]
        try:
            write(store, place)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WRITES)
def test_after_each_step_the_store_is_sound_and_a_rerun_finishes(
    elsewhere: Path, tmp_path: Path, name: str
) -> None:
    there, write = WRITES[name]
    fatal, finished = 0, False
    while not finished:
        store = open_store(tmp_path / f"store{fatal}", create=True)
        if there:
            publish(store, elsewhere)
        finished = survived(write, store, elsewhere, fatal)
        health = check_store(store)
        # An entry may outlive its blob by a moment of a collector's work; builds never do.
        faults = [finding.message for finding in health.findings]
        assert all("program entry" in text for text in faults), (fatal, faults)
        assert name == "collect" or health.sound, fatal
        for build in store.builds.ids():
            assert store.builds.read(build) == BUILD
        write(store, elsewhere)
        assert check_store(store).sound
        assert store.builds.ids() == ([] if name == "collect" else [BUILD.build_id])
        fatal += 1
    assert fatal > 5, "each of several steps was fatal once"
