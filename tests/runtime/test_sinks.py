"""Reading what another host has just written: a bounded wait, then a clear miss."""

from collections.abc import Callable

import pytest

from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.contract.program import BlobRef
from pp_precompile.runtime import sinks
from pp_precompile.runtime.sinks import StoreSink
from pp_precompile.store.store import Store
from tests.manifests import refer

DATA = b"a program of another host"
REF = refer(DATA)


class _Seen:
    """Stands for the blobs of ``store`` as this host sees them, and counts the looks at them."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self._get: Callable[[BlobRef], bytes] = store.blobs.get
        self._then: dict[int, Callable[[], object]] = {}
        monkeypatch.setattr(store.blobs, "get", self.get)
        monkeypatch.setattr(sinks, "_POLL_SECONDS", 0.01)

    def before_look(self, number: int, event: Callable[[], object]) -> None:
        self._then[number] = event

    def get(self, ref: BlobRef) -> bytes:
        self.looks += 1
        self._then.get(self.looks, lambda: None)()
        return self._get(ref)


def test_a_blob_that_appears_late_is_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _Seen(store, monkeypatch)
    path = store.blobs.path(REF.digest)
    path.parent.mkdir(parents=True)
    # A network file system may show a name before all of the bytes.
    seen.before_look(3, lambda: path.write_bytes(DATA[:5]))
    seen.before_look(5, lambda: path.write_bytes(DATA))
    assert StoreSink(store, patient=True).read(REF) == DATA
    assert seen.looks == 5


@pytest.mark.parametrize(
    ("there", "error", "code"), [(b"", StoreError, "PPC203"), (DATA[:5], CorruptError, "PPC204")]
)
def test_one_that_does_not_is_a_miss_after_a_bounded_wait(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    there: bytes,
    error: type[StoreError],
    code: str,
) -> None:
    if there:
        path = store.blobs.path(REF.digest)
        path.parent.mkdir(parents=True)
        path.write_bytes(there)
    monkeypatch.setattr(sinks, "VISIBLE_SECONDS", 0.3)
    seen = _Seen(store, monkeypatch)
    with pytest.raises(error) as caught:
        StoreSink(store, patient=True).read(REF)
    assert caught.value.code == code
    assert str(store.blobs.path(REF.digest)) in str(caught.value)
    assert seen.looks > 1


def test_without_patience_there_is_one_look(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _Seen(store, monkeypatch)
    with pytest.raises(StoreError, match="PPC203"):
        StoreSink(store).read(REF)
    assert seen.looks == 1


def test_a_fault_that_no_waiting_cures_is_raised_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _Seen(store, monkeypatch)
    path = store.blobs.path(REF.digest)
    path.mkdir(parents=True)
    with pytest.raises(StoreError):
        StoreSink(store, patient=True).read(REF)
    assert seen.looks == 1
