"""Ranks (threads here, over a real c10d store) agree, or all end with the same reason."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from pp_precompile.contract.errors import AgreementError, StoreError
from pp_precompile.runtime.agreement import Agreement, ranks_on_hosts
from pp_precompile.runtime.bounded import BoundedStore
from pp_precompile.runtime.farewell import leave_together


def _run(
    world_size: int,
    body: Callable[[Agreement, int], Any],
    stores: Callable[[int, Any], Any] = lambda rank, store: store,
    **parameters: Any,
) -> list[Any]:
    """Run ``body`` on every rank; returns each rank's result or exception.

    ``stores`` makes what a rank sees of the store that all share.
    """
    store = dist.HashStore()
    results: list[Any] = [None] * world_size
    defaults = {"poll_seconds": 0.001, "report_seconds": 0.05, "linger_seconds": 2.0}

    def rank_body(rank: int) -> None:
        host = f"node-{'ab'[rank % 2]}"
        seen = stores(rank, store)
        agreement = Agreement(seen, rank, world_size, host=host, **(defaults | parameters))
        try:
            with agreement.guard():
                results[rank] = body(agreement, rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=rank_body, args=(r,)) for r in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


def test_all_gather_gives_everyone_all_records_by_rank() -> None:
    results = _run(5, lambda a, rank: a.all_gather("x", bytes([rank]), timeout=5))
    assert results == [[b"\0", b"\1", b"\2", b"\3", b"\4"]] * 5


def test_rounds_do_not_mix() -> None:
    def body(agreement: Agreement, rank: int) -> list[list[bytes]]:
        return [agreement.all_gather(n, f"{n}{rank}".encode(), timeout=5) for n in ("a", "b")]

    assert _run(2, body) == [[[b"a0", b"a1"], [b"b0", b"b1"]]] * 2


def test_agreements_of_other_names_do_not_mix() -> None:
    store = dist.HashStore()
    first, second = (Agreement(store, 0, 1, name=name) for name in ("trainer0", "trainer1"))
    assert first.all_gather("x", b"old", timeout=5) == [b"old"]
    with pytest.raises(ZeroDivisionError), first.guard():
        raise ZeroDivisionError
    assert second.all_gather("x", b"new", timeout=5) == [b"new"]
    with pytest.raises(AgreementError):
        first.check()


def test_broadcast_runs_on_rank_0_only() -> None:
    ran: list[int] = []

    def body(agreement: Agreement, rank: int) -> bytes:
        return agreement.broadcast("x", lambda: ran.append(rank) or b"done", timeout=5)

    assert _run(3, body) == [b"done"] * 3
    assert ran == [0]


@pytest.mark.parametrize("failing", [0, 2])
def test_a_failure_reaches_every_rank_with_its_reason(failing: int) -> None:
    def body(agreement: Agreement, rank: int) -> None:
        if rank == failing:
            raise StoreError("PPC204", "a blob is damaged", found="other bytes")
        agreement.all_gather("x", b"", timeout=20)

    results = _run(3, body)
    assert isinstance(results[failing], StoreError)
    for rank in {0, 1, 2} - {failing}:
        error = results[rank]
        assert isinstance(error, AgreementError)
        assert error.code == "PPC401"
        assert error.where.rank == failing
        assert "PPC204: a blob is damaged" in str(error)
        assert "other bytes" in str(error)
        assert f"see the output of rank {failing} on node-a" in str(error)


def test_a_failure_outside_our_errors_names_its_type() -> None:
    def body(agreement: Agreement, rank: int) -> None:
        if rank == 1:
            raise ZeroDivisionError("by zero")
        agreement.all_gather("x", b"", timeout=20)

    assert "ZeroDivisionError: by zero" in str(_run(2, body)[0])


def test_a_failure_is_seen_between_long_steps_too() -> None:
    failed = threading.Event()

    def body(agreement: Agreement, rank: int) -> None:
        if rank == 0:
            failed.set()
            raise RuntimeError("broken compiler")
        failed.wait(5)
        while True:
            agreement.check()

    error = _run(2, body)[1]
    assert isinstance(error, AgreementError)
    assert "broken compiler" in str(error)


def test_a_silent_rank_is_named_after_a_bounded_wait() -> None:
    def body(agreement: Agreement, rank: int) -> None:
        if rank != 2:
            agreement.all_gather("request", b"", timeout=0.3)

    results = _run(4, body)
    codes = {result.code for result in (results[0], results[1], results[3])}
    assert codes <= {"PPC402", "PPC401"}
    assert "rank 2" in str(results[0])
    assert "'request'" in str(results[0])


def test_a_waiting_rank_says_whom_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    late = threading.Event()

    def body(agreement: Agreement, rank: int) -> None:
        if rank == 1:
            late.wait(0.3)
        agreement.all_gather("compiled", b"", timeout=5)

    with caplog.at_level("INFO"):
        _run(2, body)
    assert "waiting for rank 1 on node-b in 'compiled'" in caplog.text


def test_ranks_leave_together_or_after_a_moment() -> None:
    store = dist.HashStore()
    together: list[bool] = []
    threads = [
        threading.Thread(target=lambda: together.append(leave_together(store, 3))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert together == [True] * 3
    assert leave_together(dist.HashStore(), 2, seconds=0.05) is False


class _CutOff:
    """A store whose answers stop, with no word, when ``cut`` is set: a cable is pulled."""

    def __init__(self, store: Any, cut: threading.Event) -> None:
        self._store = store
        self._cut = cut

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any) -> Any:
            if self._cut.is_set():
                threading.Event().wait(60)
            return getattr(self._store, name)(*arguments)

        return ask


def test_a_rank_without_the_store_ends_and_the_others_miss_its_signs_of_life() -> None:
    """Both sides of a cut end long before the round's timeout, each with what it can know."""
    cut = threading.Event()
    both = threading.Barrier(3)

    def body(agreement: Agreement, rank: int) -> None:
        agreement.all_gather("first", b"", timeout=20)
        both.wait(20)
        if rank == 1:
            time.sleep(0.1)  # give a sign of life
            cut.set()
        agreement.all_gather("request", b"", timeout=300)

    start = time.monotonic()
    results = _run(
        3,
        body,
        lambda rank, store: _CutOff(store, cut) if rank == 1 else store,
        store_seconds=0.3,
        pulse_seconds=0.02,
        silent_seconds=1.0,
    )
    assert time.monotonic() - start < 30
    assert [error.code for error in results] == ["PPC402", "PPC402", "PPC401"]
    assert "cannot reach the job's key-value store" in str(results[1])
    assert "none from rank 1 on node-b" in str(results[0])
    assert "none from rank 1 on node-b" in str(results[2]), "it is told why rank 0 gave up"


def test_a_rank_that_has_not_come_yet_is_no_silent_one() -> None:
    """Start-up takes as long as it takes; only who came and fell silent is given up early."""

    def body(agreement: Agreement, rank: int) -> list[bytes]:
        return agreement.all_gather("request", b"", timeout=20)

    def stores(rank: int, store: Any) -> Any:
        time.sleep(1.5 if rank == 1 else 0)
        return store

    results = _run(2, body, stores, pulse_seconds=0.02, silent_seconds=1.0)
    assert results == [[b"", b""]] * 2


def test_a_rank_busy_for_longer_than_the_limit_gives_signs_of_life() -> None:
    def body(agreement: Agreement, rank: int) -> list[bytes]:
        if rank == 1:
            time.sleep(2.0)
        return agreement.all_gather("request", b"", timeout=20)

    results = _run(2, body, pulse_seconds=0.02, silent_seconds=1.0)
    assert results == [[b"", b""]] * 2


def test_who_answered_early_is_not_missed_later() -> None:
    """Only ranks that are waited for are looked at: rank 1 answers, and then stands still."""

    def body(agreement: Agreement, rank: int) -> None:
        if rank == 2:
            time.sleep(2.0)
        agreement.all_gather("request", b"", timeout=20)

    stopped = threading.Event()
    threading.Timer(0.2, stopped.set).start()

    class _NoPulse:
        def __init__(self, store: Any) -> None:
            self._store = store

        def add(self, key: str, amount: int) -> Any:
            mine = key.endswith("/pulse/1") and stopped.is_set()
            return self._store.add(key, 0 if mine else amount)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    results = _run(
        3, body, lambda _, store: _NoPulse(store), pulse_seconds=0.02, silent_seconds=1.0
    )
    assert results == [None] * 3


def test_a_store_that_is_gone_is_an_error_of_ours() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=timedelta(seconds=5))
    bounded = BoundedStore(client, seconds=20)
    bounded.set("key", b"value")
    assert bounded.get("key") == b"value"
    port = server.port
    del server

    def ask() -> None:
        for _ in range(100):
            bounded.check(["key"])
            time.sleep(0.05)

    with pytest.raises(AgreementError) as caught:
        ask()
    assert caught.value.code == "PPC402"
    assert f"store at 127.0.0.1:{port}" in str(caught.value)
    with pytest.raises(AgreementError), Agreement(client, 0, 2).guard():
        Agreement(client, 0, 2).all_gather("x", b"", timeout=5)
    assert leave_together(client, 2) is False


def test_after_one_late_answer_nothing_is_waited_for() -> None:
    cut = threading.Event()
    bounded = BoundedStore(_CutOff(dist.HashStore(), cut), seconds=0.1)
    bounded.set("key", b"value")
    cut.set()
    with pytest.raises(AgreementError, match="no answer"):
        bounded.get("key")
    cut.clear()
    with pytest.raises(AgreementError, match="an earlier question is still open"):
        bounded.get("key")
    cut.set()
    assert leave_together(_CutOff(dist.HashStore(), cut), 2, seconds=0.1) is False


def test_a_mistake_of_ours_is_not_taken_for_the_network() -> None:
    with pytest.raises(TypeError):
        BoundedStore(dist.HashStore(), seconds=5).set("key", 3)  # type: ignore[arg-type]


def test_ranks_are_named_by_host() -> None:
    assert ranks_on_hosts({3: "b", 0: "a", 2: "b"}) == "rank 0 on a; ranks 2, 3 on b"
    assert ranks_on_hosts({1: ""}) == "rank 1"
    many = ranks_on_hosts({rank: f"h{rank // 16}" for rank in range(160)})
    assert many.startswith("ranks 0, 1, 2, 3, 4, 5, 6, 7 and 8 more on h0; ")
    assert many.endswith(" and 2 more host(s)")
