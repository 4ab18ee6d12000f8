"""What this project's Python adds to every call of a stage's compiled programs.

``python -m benchmarks.wrapper_overhead [--calls 3000] [--json FILE] [--profile]``

In one process, on stages whose programs compute next to nothing: the time of a call of the stage
(F), of a backward through autograd (B), and of its two parts (I, W), without the time inside the
programs. ``autograd`` is what torch's autograd alone needs for the same, with a function that does
nothing; it is part of the overhead, and no Python of ours can be below it. What torch's
``PipelineStage`` adds comes on top and is not measured here.
"""

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pp_precompile.titan import cpu_platform

BLOCKS = (1, 9)
"""Sizes of stages; a block has two parameters, so the larger one is like two layers of llama3."""

GOAL_MICROSECONDS = 100.0

_WARMUP = 200
_SHOWN = 8

Call = Callable[[], None]


class Stopwatch:
    """Adds up the time inside of what it wraps; can keep a profiler out of it."""

    def __init__(self) -> None:
        """Start at zero."""
        self.seconds = 0.0
        self.profile: cProfile.Profile | None = None

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function``, timed."""

        def timed(*args: Any) -> Any:
            if self.profile:
                self.profile.disable()
            start = time.perf_counter()
            result = function(*args)
            self.seconds += time.perf_counter() - start
            if self.profile:
                self.profile.enable()
            return result

        return timed


@contextmanager
def _calls(blocks: int, mesh: Any, watch: Stopwatch) -> Iterator[dict[str, Call]]:
    """Yield what each kind of action does on a stage, by kind, to be called in this order."""
    import torch

    from benchmarks.tiny_stage import compiled_stage, inputs
    from pp_precompile.runtime.loader import LoadedStage
    from pp_precompile.runtime.stage_forward import install

    module, stage = compiled_stage(blocks, mesh)
    programs = {role: watch.around(program) for role, program in stage.programs.items()}
    forward = install(module, LoadedStage(record=stage.record, programs=programs))
    forward.bind(module)
    x = inputs()
    tangent = torch.randn_like(x)
    state: dict[str, Any] = {}

    def run() -> None:
        state["y"] = module(x)

    def whole() -> None:
        torch.autograd.backward(state["y"], tangent)
        forward.take_of_weights()()

    def of_inputs() -> None:
        with forward.weights_later():
            torch.autograd.backward(state["y"], tangent)
        state["w"] = forward.take_of_weights()

    def of_weights() -> None:
        state["w"]()

    yield {"F": run, "B": whole, "F again": run, "I": of_inputs, "W": of_weights}


@contextmanager
def _autograd(watch: Stopwatch) -> Iterator[dict[str, Call]]:
    """Yield forward and backward of an autograd function that does nothing."""
    import torch

    from benchmarks.tiny_stage import inputs

    make = watch.around(torch.empty_like)

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, stage: Any, anchor: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return make(x)

        @staticmethod
        def backward(ctx: Any, tangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            return None, None, tangent

    x, anchor = inputs(), torch.empty((), requires_grad=True)
    tangent = torch.randn_like(x)
    state: dict[str, torch.Tensor] = {}

    def run() -> None:
        state["y"] = Nothing.apply(None, anchor, x)

    def whole() -> None:
        torch.autograd.backward(state["y"], tangent)

    yield {"F": run, "B": whole}


def _measure(calls: dict[str, Call], watch: Stopwatch, count: int) -> dict[str, dict[str, float]]:
    """Return by kind the medians, in microseconds, of a call and of what is not in programs."""
    samples: dict[str, list[tuple[float, float]]] = {kind: [] for kind in calls}
    for _ in range(count + _WARMUP):
        for kind, call in calls.items():
            watch.seconds = 0.0
            start = time.perf_counter()
            call()
            whole = time.perf_counter() - start
            samples[kind].append((whole, whole - watch.seconds))
    return {
        kind: {
            "call": 1e6 * statistics.median(whole for whole, _ in pairs[_WARMUP:]),
            "overhead": 1e6 * statistics.median(outside for _, outside in pairs[_WARMUP:]),
        }
        for kind, pairs in samples.items()
        if " " not in kind
    }


def _profiled(
    calls: dict[str, Call], watch: Stopwatch, count: int
) -> dict[str, list[tuple[str, float]]]:
    """Return by kind the functions with the most time of their own, in microseconds a call."""
    profiles = {kind: cProfile.Profile() for kind in calls}
    for _ in range(count):
        for kind, call in calls.items():
            watch.profile = profiles[kind]
            watch.profile.enable()
            call()
            watch.profile.disable()
    watch.profile = None
    return {
        kind: _own_times(profile, count) for kind, profile in profiles.items() if " " not in kind
    }


def _own_times(profile: cProfile.Profile, count: int) -> list[tuple[str, float]]:
    stats: dict[tuple[str, int, str], Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    own = [
        (f"{name} ({Path(file).name})" if line else name, 1e6 * values[2] / count)
        for (file, line, name), values in stats.items()
        if Path(file).name != Path(__file__).name
    ]
    return sorted(own, key=lambda pair: -pair[1])[:_SHOWN]


def measure(count: int, sizes: Sequence[int] = BLOCKS, *, profile: bool = False) -> dict[str, Any]:
    """Return the overhead of every stage and kind of action; all times are microseconds."""
    from benchmarks.tiny_stage import one_rank

    stages, profiles = {}, {}
    with one_rank() as mesh:
        for blocks in sizes:
            name = f"{2 * blocks} parameters"
            watch = Stopwatch()
            with _calls(blocks, mesh, watch) as calls:
                stages[name] = _measure(calls, watch, count)
                if profile:
                    profiles[name] = _profiled(calls, watch, max(count // 10, 1))
        watch = Stopwatch()
        with _autograd(watch) as calls:
            autograd = _measure(calls, watch, count)
    return {
        "goal": GOAL_MICROSECONDS,
        "calls": count,
        "stages": stages,
        "autograd": autograd,
        "profiles": profiles,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return 0."""
    options = _options(argv)
    if cpu_platform.needed():
        cpu_platform.enable()
    found = measure(options.calls, options.blocks, profile=options.profile)
    for name, kinds in found["stages"].items():
        for kind, times in kinds.items():
            print(f"{name:>14} {kind}: {times['overhead']:6.1f} µs around {_inside(times):6.1f} µs")
    for kind, times in found["autograd"].items():
        print(f"autograd alone {kind}: {times['overhead']:6.1f} µs")
    for name, of_kinds in found["profiles"].items():
        for kind, functions in of_kinds.items():
            print(f"\n{name}, {kind}: time of their own, µs a call, slowed down by the profiler")
            for function, microseconds in functions:
                print(f"{microseconds:8.1f}  {function}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _inside(times: dict[str, float]) -> float:
    return times["call"] - times["overhead"]


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.wrapper_overhead",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--calls", type=int, default=3000, help="calls of every kind (3000)")
    parser.add_argument("--blocks", type=int, nargs="+", default=BLOCKS, help="sizes of stages")
    parser.add_argument("--profile", action="store_true", help="also say where the time goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
