"""Ranks take one decision, through the job's key-value store.

Everyone writes what it knows under its own key and polls. A rank that fails writes why under one
more key that all polls look at, so that the others end with its reason, in seconds, instead of
hanging in a collective until a timeout that says nothing. See docs/adr/0003.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from pp_precompile.contract import encoding
from pp_precompile.contract.errors import AgreementError, PrecompileError, Where

logger = logging.getLogger(__name__)

PREFIX = "pp_precompile"


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


class _Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rank: int
    code: str
    text: str


class Agreement:
    """Exchanges small records between the ranks of one job, in named rounds."""

    def __init__(
        self,
        store: KeyValueStore,
        rank: int,
        world_size: int,
        *,
        name: str = "start",
        poll_seconds: float = 0.02,
        report_seconds: float = 15.0,
        linger_seconds: float = 5.0,
    ) -> None:
        """Take part as ``rank`` of ``world_size``.

        Args:
            store: shared by all ranks of this job and this start of it.
            rank: this rank.
            world_size: number of ranks.
            name: tells this agreement from others in the same store, such as that of a trainer
                which this process made before.
            poll_seconds: time between two looks at the store.
            report_seconds: how often a waiting rank says whom it waits for.
            linger_seconds: how long a failing rank stays until the others have seen why.
        """
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._prefix = f"{PREFIX}/{name}"
        self._abort = f"{self._prefix}/abort"
        self._seen = f"{self._prefix}/abort/seen"
        self._poll = poll_seconds
        self._report = report_seconds
        self._linger = linger_seconds

    @property
    def rank(self) -> int:
        """This rank."""
        return self._rank

    def all_gather(self, name: str, data: bytes, *, timeout: float) -> list[bytes]:
        """Return every rank's ``data`` of round ``name``, by rank.

        Rank 0 collects and hands out, so that the store sees a number of requests that grows
        linearly with the ranks.

        Raises:
            AgreementError: PPC401 if another rank failed, PPC402 after ``timeout`` seconds.
        """
        prefix = f"{self._prefix}/{name}"
        self._store.set(f"{prefix}/{self._rank}", data)
        if self._rank == 0:
            keys = [f"{prefix}/{rank}" for rank in range(self._world_size)]
            self._wait(name, keys, timeout)
            self._store.set(f"{prefix}/all", encoding.encode([self._store.get(k) for k in keys]))
        self._wait(name, [f"{prefix}/all"], timeout)
        gathered = self._store.get(f"{prefix}/all")
        return encoding.decode(gathered, list[bytes], what=f"round {name}")

    def broadcast(self, name: str, make: Callable[[], bytes], *, timeout: float) -> bytes:
        """Return what rank 0's ``make`` returned; the others wait for it.

        Raises:
            AgreementError: PPC401 if another rank failed, PPC402 after ``timeout`` seconds.
        """
        key = f"{self._prefix}/{name}"
        if self._rank == 0:
            self._store.set(key, make())
        self._wait(name, [key], timeout)
        return self._store.get(key)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Tell the other ranks if the block fails, then let the error go on."""
        try:
            yield
        except AgreementError:
            raise
        except BaseException as error:
            self._fail(error)
            raise

    def check(self) -> None:
        """Raise if another rank failed: for use between long steps of one's own.

        Raises:
            AgreementError: PPC401 with that rank's reason.
        """
        if self._store.check([self._abort]):
            self._store.add(self._seen, 1)
            failure = encoding.decode(
                self._store.get(self._abort), _Failure, what="a rank's failure"
            )
            raise AgreementError(
                "PPC401",
                f"rank {failure.rank} failed, so this rank stops too",
                where=Where(rank=failure.rank),
                found=failure.text,
                hint=f"see the output of rank {failure.rank}",
            )

    def _fail(self, error: BaseException) -> None:
        code = error.code if isinstance(error, PrecompileError) else ""
        text = str(error) if code else f"{type(error).__name__}: {error}"
        failure = _Failure(rank=self._rank, code=code, text=text[:4000])
        with contextlib.suppress(RuntimeError):  # the store may be what failed
            if self._store.check([self._abort]):
                return
            self._store.set(self._abort, encoding.encode(failure))
            end = time.monotonic() + self._linger
            while self._store.add(self._seen, 0) < self._world_size - 1 and time.monotonic() < end:
                time.sleep(self._poll)

    def _wait(self, name: str, keys: Sequence[str], timeout: float) -> None:
        start = last_report = time.monotonic()
        while not self._store.check(list(keys)):
            self.check()
            now = time.monotonic()
            if now - start > timeout:
                raise AgreementError(
                    "PPC402",
                    f"not every rank answered in round '{name}'",
                    expected=f"{self._world_size} ranks within {timeout:.0f} s",
                    found=f"still waiting for {self._missing(keys)}",
                    hint="look at those ranks' output; the wait is bounded so that nobody hangs",
                )
            if now - last_report > self._report:
                last_report = now
                waited = now - start
                logger.info(f"waiting for {self._missing(keys)} in '{name}' ({waited:.0f} s)")
            time.sleep(self._poll)

    def _missing(self, keys: Sequence[str]) -> str:
        missing = [key.rsplit("/", 1)[1] for key in keys if not self._store.check([key])]
        ranks = [text for text in missing if text.isdigit()]
        shown = ", ".join(ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
        return f"rank {shown}" if ranks else "rank 0"
