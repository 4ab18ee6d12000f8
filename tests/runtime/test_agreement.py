"""Ranks (threads here, over a real c10d store) agree, or all end with the same reason."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist

from pp_precompile.contract.errors import AgreementError, StoreError
from pp_precompile.runtime.agreement import Agreement
from pp_precompile.runtime.farewell import leave_together


def _run(world_size: int, body: Callable[[Agreement, int], Any]) -> list[Any]:
    """Run ``body`` on every rank; returns each rank's result or exception."""
    store = dist.HashStore()
    results: list[Any] = [None] * world_size

    def rank_body(rank: int) -> None:
        agreement = Agreement(
            store, rank, world_size, poll_seconds=0.001, report_seconds=0.05, linger_seconds=2.0
        )
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
    assert "waiting for rank 1 in 'compiled'" in caplog.text


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
