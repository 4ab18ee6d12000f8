"""Where the time of one training step goes on one rank: computing, waiting for messages, the rest.

Wraps functions; knows neither torch nor schedules (see :mod:`benchmarks.recorded_steps`).
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


class StepClock:
    """Collects a record of every step.

    ``busy`` holds seconds inside compute actions by kind, without what was waited inside of them;
    ``waiting`` seconds in waits for messages; ``programs`` seconds inside compiled programs;
    ``cpu`` the processor time of all threads of the process. ``seconds`` is the whole step.
    """

    def __init__(self) -> None:
        """Start without steps."""
        self.steps: list[dict[str, Any]] = []
        self._inside = False
        self._reset()

    def _reset(self) -> None:
        self._busy: defaultdict[str, float] = defaultdict(float)
        self._calls: Counter[str] = Counter()
        self._waiting = self._programs = 0.0

    def step(self, function: Function) -> Function:
        """Return ``function``, each call of which is one step."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._reset()
            cpu, start = time.process_time(), time.perf_counter()
            result = function(*args, **kwargs)
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            self.steps.append(
                {
                    "seconds": seconds,
                    "cpu": cpu,
                    "waiting": self._waiting,
                    "programs": self._programs,
                    "busy": dict(self._busy),
                    "calls": dict(self._calls),
                }
            )
            return result

        return timed

    def action(self, kind: str | Callable[..., str], function: Function) -> Function:
        """Return ``function`` as a compute action; ``kind`` may depend on its arguments.

        What an action calls is part of it, so only the outermost one counts.
        """

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            name = kind if isinstance(kind, str) else kind(*args, **kwargs)
            self._inside, waited = True, self._waiting
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                seconds = time.perf_counter() - start
                self._inside = False
                self._busy[name] += seconds - (self._waiting - waited)
                self._calls[name] += 1

        return timed

    def wait(self, function: Function) -> Function:
        """Return ``function`` as a wait for messages."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._waiting += time.perf_counter() - start

        return timed

    def program(self, function: Function) -> Function:
        """Return ``function`` as a compiled program."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._programs += time.perf_counter() - start
                self._calls["program"] += 1

        return timed
