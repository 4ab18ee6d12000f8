"""``pp_precompile.train``, and how long each stage's actions take, for ``pp-precompile plan``.

``torchrun … -m benchmarks.action_times <torchtitan arguments>`` trains as ``pp_precompile.train``
does. Each rank writes ``times_N.json`` into the folder ``$PP_PRECOMPILE_PHASES``: medians over all
steps but the first, in the form of docs/plan.md. A forward of the last stage includes its loss;
waiting for messages between stages is in none of them, waiting inside of collectives is.
"""

import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pp_precompile.graph.times import SCHEMA
from pp_precompile.titan import cpu_platform

Function = Callable[..., Any]


class ActionTimes:
    """Seconds of actions, by stage and kind, of every step; knows neither torch nor schedules."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Start before the first step."""
        self._clock = clock
        self._seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
        self._steps = 0

    def step(self, function: Function) -> Function:
        """Return ``function``, each call of which is one step; the first one does not count."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self._steps += 1
            if self._steps == 1:
                self._seconds.clear()
            return result

        return counted

    def action(self, kind: Callable[..., str], function: Function) -> Function:
        """Return ``function``, a method of stages, as an action; its arguments say which kind."""

        def timed(stage: Any, *args: Any, **kwargs: Any) -> Any:
            start = self._clock()
            result = function(stage, *args, **kwargs)
            seconds = self._clock() - start
            self._seconds[stage.stage_index, kind(*args, **kwargs)].append(seconds)
            return result

        return timed

    def loss(self, function: Function) -> Function:
        """Return ``function``, a method of schedules, as a part of the forward before it."""

        def timed(schedule: Any, stage: Any, *args: Any, **kwargs: Any) -> Any:
            start = self._clock()
            result = function(schedule, stage, *args, **kwargs)
            forwards = self._seconds.get((stage.stage_index, "F"))
            if forwards:
                forwards[-1] += self._clock() - start
            return result

        return timed

    def document(self) -> dict[str, Any]:
        """Return the medians as a file for ``--times`` has them."""
        stages: dict[str, dict[str, float]] = {}
        for (stage, kind), seconds in sorted(self._seconds.items()):
            stages.setdefault(str(stage), {})[kind] = statistics.median(seconds)
        return {"schema": SCHEMA, "stages": stages}


def record_action_times(times: ActionTimes) -> None:
    """Make stages and schedules of this process report to ``times``."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineSchedule
    from torchtitan.trainer import Trainer

    from pp_precompile.runtime.pipeline_stage import PrecompiledStage

    def whole_or_input(*_: Any, full_backward: bool = True, **__: Any) -> str:
        return "B" if full_backward else "I"

    for owner, method, kind in (
        (PipelineStage, "forward_one_chunk", lambda *_, **__: "F"),
        (PrecompiledStage, "backward_one_chunk", whole_or_input),
        (PipelineStage, "backward_weight_one_chunk", lambda *_, **__: "W"),
    ):
        setattr(owner, method, times.action(kind, _finished(getattr(owner, method))))
    loss = times.loss(_finished(_PipelineSchedule._maybe_compute_loss))
    _PipelineSchedule._maybe_compute_loss = loss
    Trainer.forward_backward_step = times.step(Trainer.forward_backward_step)


def _finished(function: Function) -> Function:
    """Return ``function`` with a wait for what it has started on an accelerator, if there is one.

    Without it only launching would be timed.
    """
    import torch

    if not torch.accelerator.is_available():
        return function

    def finished(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        torch.accelerator.synchronize()
        return result

    return finished


def main() -> int:
    """Train, write the times, and return training's exit code."""
    if cpu_platform.needed():
        cpu_platform.enable()
    times = ActionTimes()
    record_action_times(times)
    from pp_precompile.train import main as train

    code = train()
    folder = Path(os.environ["PP_PRECOMPILE_PHASES"])
    path = folder / f"times_{os.environ['RANK']}.json"
    path.write_text(json.dumps(times.document(), indent=1) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
