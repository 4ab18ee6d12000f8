"""Program entries: found when whole, compiled again when not."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.contract.program import MAX_ENTRY_BYTES, ProgramEntry
from pp_precompile.store.store import Store
from tests.manifests import refer, some_digest

KEY = some_digest("key")
OTHER = some_digest("other key")


def entry(store: Store, key: str = KEY, data: bytes = b"program") -> ProgramEntry:
    return ProgramEntry(key=some_digest(key), blob=store.blobs.put(data), kernels=2)


@pytest.fixture
def recorded(store: Store) -> ProgramEntry:
    made = entry(store)
    store.programs.record(made)
    return made


def entry_path(store: Store, recorded: ProgramEntry) -> Path:
    return store.root / "programs" / recorded.key[:2] / f"{recorded.key}.msgpack"


def test_what_is_recorded_is_found(store: Store, recorded: ProgramEntry) -> None:
    assert store.programs.find(recorded.key) == recorded
    assert entry_path(store, recorded).read_bytes() == encode(recorded)
    assert list(store.programs) == [recorded.key]


def test_an_unknown_key_is_not_found(store: Store, recorded: ProgramEntry) -> None:
    assert store.programs.find(OTHER) is None


def test_an_entry_may_be_replaced(store: Store, recorded: ProgramEntry) -> None:
    newer = entry(store, data=b"newer program")
    store.programs.record(newer)
    assert newer.key == recorded.key
    assert store.programs.find(recorded.key) == newer


def test_an_entry_without_its_blob_is_not_found(
    store: Store, recorded: ProgramEntry, caplog: pytest.LogCaptureFixture
) -> None:
    store.blobs.remove(recorded.blob.digest)
    assert store.programs.find(recorded.key) is None
    assert caplog.records == []
    store.blobs.put(b"program")
    assert store.programs.find(recorded.key) == recorded


def truncate(store: Store, recorded: ProgramEntry) -> None:
    entry_path(store, recorded).write_bytes(encode(recorded)[:-1])


def empty(store: Store, recorded: ProgramEntry) -> None:
    entry_path(store, recorded).write_bytes(b"")


def grow(store: Store, recorded: ProgramEntry) -> None:
    entry_path(store, recorded).write_bytes(bytes(MAX_ENTRY_BYTES + 1))


def swap(store: Store, recorded: ProgramEntry) -> None:
    other = entry(store, "other", b"other program")
    store.programs.record(other)
    entry_path(store, other).replace(entry_path(store, recorded))


def link(store: Store, recorded: ProgramEntry) -> None:
    path = entry_path(store, recorded)
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def damage_blob(store: Store, recorded: ProgramEntry) -> None:
    store.blobs.path(recorded.blob.digest).write_bytes(b"PROGRAM")


def truncate_blob(store: Store, recorded: ProgramEntry) -> None:
    store.blobs.path(recorded.blob.digest).write_bytes(b"prog")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "PPC205: program entry {key} is not in the stored format"),
        (empty, "PPC205: program entry {key} is not in the stored format"),
        (grow, f"{MAX_ENTRY_BYTES + 1} bytes, the most allowed is {MAX_ENTRY_BYTES}"),
        (swap, "PPC205: program entry {key} is not what its file name says"),
        (link, "is not safe to load code from"),
        (damage_blob, "PPC204: blob {blob} is damaged"),
        (truncate_blob, "PPC204: blob {blob} is damaged"),
    ],
)
def test_damage_is_a_warning_and_heals(
    store: Store,
    recorded: ProgramEntry,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Store, ProgramEntry], None],
    reason: str,
) -> None:
    damage(store, recorded)
    assert store.programs.find(recorded.key) is None
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    text = warning.getMessage()
    assert text.startswith(f"program {recorded.key} will be compiled again: PPC20")
    assert reason.format(key=recorded.key, blob=recorded.blob.digest) in text
    assert "next:" in text
    # What a build does next: compile, put, record.
    store.programs.record(entry(store))
    assert store.programs.find(recorded.key) == recorded


def test_a_store_that_became_unsafe_is_no_miss(store: Store, recorded: ProgramEntry) -> None:
    entry_path(store, recorded).parent.chmod(0o777)
    with pytest.raises(StoreError, match="PPC208") as caught:
        store.programs.find(recorded.key)
    assert not isinstance(caught.value, CorruptError)


def test_a_removed_entry_is_gone_and_its_blob_is_not(store: Store, recorded: ProgramEntry) -> None:
    store.programs.remove(recorded.key)
    store.programs.remove(recorded.key)
    assert store.programs.find(recorded.key) is None
    assert list(store.programs) == []
    assert store.blobs.get(refer(b"program")) == b"program"
