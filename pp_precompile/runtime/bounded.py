"""The job's key-value store, asked in such a way that every question ends.

torch's store answers over a TCP connection. When the network is cut, or the host that keeps the
store loses power, nobody says so: a question then waits for the kernel to give up, which takes a
quarter of an hour, and no setting of the store bounds it (``set_timeout`` is about keys that are
not there yet). So each question runs in a thread of its own and is given up after a while. Such a
thread cannot be ended; it is a daemon and stays behind.
"""

import platform
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pp_precompile.contract.errors import AgreementError

_Result = TypeVar("_Result")


class KeyValueStore(Protocol):
    """The part of ``torch.distributed.Store`` that is used."""

    def set(self, key: str, value: bytes) -> None:
        """Set ``key``."""

    def get(self, key: str) -> bytes:
        """Return the value of ``key``, waiting for it."""

    def check(self, keys: list[str]) -> bool:
        """Tell at once whether all ``keys`` are set."""

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return its new value."""


class BoundedStore:
    """A :class:`KeyValueStore` whose methods raise PPC402 instead of waiting for longer.

    After one late answer the store counts as out of reach, and later questions fail at once: the
    late one still holds the connection.
    """

    def __init__(self, store: KeyValueStore, *, seconds: float) -> None:
        """Ask ``store``, and wait for ``seconds`` for each answer."""
        self._store = store
        self._seconds = seconds
        self._address = _address(store)
        self._late = threading.Event()

    def set(self, key: str, value: bytes) -> None:
        """Set ``key``."""
        self._ask(lambda: self._store.set(key, value))

    def get(self, key: str) -> bytes:
        """Return the value of ``key``, which must be there."""
        return self._ask(lambda: self._store.get(key))

    def check(self, keys: list[str]) -> bool:
        """Tell at once whether all ``keys`` are set."""
        return self._ask(lambda: self._store.check(keys))

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return its new value."""
        return self._ask(lambda: self._store.add(key, amount))

    def _ask(self, question: Callable[[], _Result]) -> _Result:
        if self._late.is_set():
            raise self._unreachable("an earlier question is still open")
        answers: list[_Result] = []
        errors: list[Exception] = []
        over = threading.Event()

        def ask() -> None:
            try:
                answers.append(question())
            except Exception as error:
                errors.append(error)
            over.set()

        threading.Thread(target=ask, name="pp_precompile store", daemon=True).start()
        if not over.wait(self._seconds):
            self._late.set()
            raise self._unreachable("no answer")
        if errors:
            # torch's errors of network and store are RuntimeErrors; anything else is a mistake.
            if isinstance(errors[0], RuntimeError):
                text = str(errors[0]).strip().splitlines() or [type(errors[0]).__name__]
                raise self._unreachable(text[0]) from errors[0]
            raise errors[0]
        return answers[0]

    def _unreachable(self, found: str) -> AgreementError:
        return AgreementError(
            "PPC402",
            f"host {platform.node()} cannot reach the job's key-value store{self._address}",
            expected=f"an answer within {self._seconds:.0f} s",
            found=found,
            hint="look at the network of this host and at the host of rank 0, which keeps the "
            "store; if both are well, the launcher there has ended, and its output says why",
        )


def _address(store: Any) -> str:
    """Return where ``store`` is kept, as far as it says so."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host, port = getattr(store, "host", ""), getattr(store, "port", "")
    return f" at {host}:{port}" if host and port else ""
