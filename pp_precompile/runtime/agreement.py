"""Ranks take one decision, through the job's key-value store.

Everyone writes what it knows under its own key and polls. A rank that fails writes why under one
more key that all polls look at, so that the others end with its reason, in seconds, instead of
hanging in a collective until a timeout that says nothing. While a rank takes part it also counts
up a key, its pulse: one whose pulse stands still is not waited for. See docs/adr/0003.
"""

import contextlib
import logging
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from pp_precompile.contract import encoding
from pp_precompile.contract.errors import AgreementError, PrecompileError, Where
from pp_precompile.runtime.bounded import BoundedStore, KeyValueStore

logger = logging.getLogger(__name__)

PREFIX = "pp_precompile"

_SHOWN = 8
"""Most ranks of one host, and most hosts, that a text names."""


class _Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rank: int
    host: str
    code: str
    text: str


def ranks_on_hosts(hosts: Mapping[int, str]) -> str:
    """Name ranks by host, such as ``ranks 2, 3 on node-b``; a host may be unknown (empty)."""
    by_host: dict[str, list[int]] = {}
    for rank in sorted(hosts):
        by_host.setdefault(hosts[rank], []).append(rank)
    texts = [
        f"{_ranks(ranks)} on {host}" if host else _ranks(ranks) for host, ranks in by_host.items()
    ]
    more = f" and {len(texts) - _SHOWN} more host(s)" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:_SHOWN])
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}{more}"


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
        store_seconds: float = 20.0,
        pulse_seconds: float = 2.0,
        silent_seconds: float = 30.0,
        host: str = "",
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
            store_seconds: how long the store may take to answer before it counts as out of reach.
            pulse_seconds: time between two signs of life, and between two looks at those of others.
            silent_seconds: how long the signs of life of a rank may be missing. A rank that has
                not come yet has given none, and is waited for until the round's timeout.
            host: what to call this rank's host; its name if empty.
        """
        self._store = BoundedStore(store, seconds=store_seconds)
        self._rank = rank
        self._world_size = world_size
        self._prefix = f"{PREFIX}/{name}"
        self._abort = f"{self._prefix}/abort"
        self._seen = f"{self._prefix}/abort/seen"
        self._poll = poll_seconds
        self._report = report_seconds
        self._linger = linger_seconds
        self._pulse = pulse_seconds
        self._silent = silent_seconds
        self._host = host or platform.node()

    @property
    def rank(self) -> int:
        """This rank."""
        return self._rank

    @property
    def host(self) -> str:
        """The name of this rank's host."""
        return self._host

    def all_gather(self, name: str, data: bytes, *, timeout: float) -> list[bytes]:
        """Return every rank's ``data`` of round ``name``, by rank.

        Rank 0 collects and hands out, so that the store sees a number of requests that grows
        linearly with the ranks.

        Raises:
            AgreementError: PPC401 if another rank failed; PPC402 after ``timeout`` seconds, or
                earlier if a rank has gone silent or the store cannot be reached.
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
            AgreementError: PPC401 if another rank failed; PPC402 after ``timeout`` seconds, or
                earlier if a rank has gone silent or the store cannot be reached.
        """
        key = f"{self._prefix}/{name}"
        if self._rank == 0:
            self._store.set(key, make())
        self._wait(name, [key], timeout)
        return self._store.get(key)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Show the other ranks signs of life; if the block fails, tell them, then let it fail.

        They are not told of another rank's failure (PPC401) and of a disagreement (PPC403), which
        they see themselves.
        """
        with self._beating():
            try:
                yield
            except BaseException as error:
                if not (isinstance(error, AgreementError) and error.code in ("PPC401", "PPC403")):
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
                hint=f"see the output of rank {failure.rank} on {failure.host}",
            )

    @contextlib.contextmanager
    def _beating(self) -> Iterator[None]:
        """Count up this rank's pulse from a thread of its own, whatever this one is busy with."""
        over = threading.Event()

        def beat() -> None:
            # A store that is out of reach is reported by whoever asks it next.
            with contextlib.suppress(AgreementError):
                self._store.set(f"{self._prefix}/host/{self._rank}", self._host.encode())
                while not over.is_set():
                    self._store.add(f"{self._prefix}/pulse/{self._rank}", 1)
                    over.wait(self._pulse)

        threading.Thread(target=beat, name="pp_precompile pulse", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _fail(self, error: BaseException) -> None:
        code = error.code if isinstance(error, PrecompileError) else ""
        text = str(error) if code else f"{type(error).__name__}: {error}"
        failure = _Failure(rank=self._rank, host=self._host, code=code, text=text[:4000])
        with contextlib.suppress(AgreementError):  # the store may be what failed
            if self._store.check([self._abort]):
                return
            self._store.set(self._abort, encoding.encode(failure))
            end = time.monotonic() + self._linger
            while self._store.add(self._seen, 0) < self._world_size - 1 and time.monotonic() < end:
                time.sleep(self._poll)

    def _wait(self, name: str, keys: Sequence[str], timeout: float) -> None:
        start = last_report = last_look = time.monotonic()
        pulses = _Pulses()
        while not self._store.check(list(keys)):
            self.check()
            now = time.monotonic()
            if now - start > timeout:
                raise self._no_answer(
                    name,
                    expected=f"{self._world_size} ranks within {timeout:.0f} s",
                    found=f"still waiting for {self._named(self._missing(keys))}",
                )
            if now - last_look > self._pulse:
                last_look = now
                silent = [
                    rank
                    for rank in self._missing(keys)
                    if pulses.still(rank, self._store.add(f"{self._prefix}/pulse/{rank}", 0))
                    > self._silent
                ]
                if silent:
                    raise self._no_answer(
                        name,
                        expected=f"signs of life at least every {self._silent:.0f} s",
                        found=f"none from {self._named(silent)}",
                    )
            if now - last_report > self._report:
                last_report = now
                missing = self._named(self._missing(keys))
                logger.info(f"waiting for {missing} in '{name}' ({now - start:.0f} s)")
            time.sleep(self._poll)

    def _no_answer(self, name: str, *, expected: str, found: str) -> AgreementError:
        return AgreementError(
            "PPC402",
            f"not every rank answered in round '{name}'",
            expected=expected,
            found=found,
            hint="look at those ranks' output and at the network of their hosts; the wait is "
            "bounded so that nobody hangs",
        )

    def _missing(self, keys: Sequence[str]) -> list[int]:
        """Return the ranks that did not set their key; what is not a rank's is set by rank 0."""
        names = [key.rsplit("/", 1)[1] for key in keys if not self._store.check([key])]
        return sorted({int(name) if name.isdigit() else 0 for name in names})

    def _named(self, ranks: Iterable[int]) -> str:
        hosts = dict.fromkeys(ranks, "")
        for rank in hosts:
            key = f"{self._prefix}/host/{rank}"
            if self._store.check([key]):
                hosts[rank] = self._store.get(key).decode(errors="replace")
        return ranks_on_hosts(hosts)


class _Pulses:
    """The pulses of other ranks, and since when each stands still."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def still(self, rank: int, pulse: int) -> float:
        """Note a rank's pulse, and return for how many seconds it has been this one.

        A rank that has not come yet has none, which is 0, and does not count as still.
        """
        now = time.monotonic()
        before, since = self._seen.get(rank, (0, now))
        if pulse == before and pulse:
            return now - since
        self._seen[rank] = pulse, now
        return 0.0
