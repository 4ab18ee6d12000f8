"""A step in the JSON form that trace viewers read (ui.perfetto.dev, chrome://tracing).

The form is Chrome's Trace Event Format: complete events (``X``) for actions, counters (``C``) for
bytes held, metadata (``M``) for names. A process stands for a rank. Times are microseconds; a unit
of time is written as a millisecond.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pp_precompile.graph.held import Held
from pp_precompile.graph.simulate import Simulation
from pp_precompile.plot.memory import curve

Event = dict[str, Any]

_MICROSECONDS = {"unit": 1e3, "second": 1e6}


def trace(
    simulation: Simulation, held: Mapping[int, Held], *, unit: str, actions: bool, name: str
) -> str:
    """Return the document as text; equal arguments give equal texts.

    Args:
        simulation: the step.
        held: what stages hold.
        unit: of the simulation's times.
        actions: with an event for each action, not only with counters.
        name: of the schedule.

    Raises:
        StaleBuildError: PPC105 for a backward in parts of a stage without programs for it.
    """
    factor = _MICROSECONDS[unit]
    events = list(_names(simulation))
    for rank in range(len(simulation.table.ranks)):
        if actions:
            events += _actions(simulation, rank, factor)
        events += _counters(simulation, rank, held, factor)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"schedule": name, "unit": unit},
        "traceEvents": events,
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _names(simulation: Simulation) -> Iterator[Event]:
    for rank, stages in enumerate(simulation.table.schedule.stages_of_rank):
        label = f"rank {rank} (stages {', '.join(map(str, stages))})"
        yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": label}}
        yield {"ph": "M", "pid": rank, "name": "process_sort_index", "args": {"sort_index": rank}}


def _actions(simulation: Simulation, rank: int, factor: float) -> Iterator[Event]:
    starts, ends = simulation.starts[rank], simulation.ends[rank]
    for action, start, end in zip(simulation.table.ranks[rank], starts, ends, strict=True):
        yield {
            "ph": "X",
            "pid": rank,
            "tid": 0,
            "name": str(action),
            "cat": action.kind,
            "ts": start * factor,
            "dur": (end - start) * factor,
            "args": {"stage": action.stage, "microbatch": action.microbatch},
        }


def _counters(
    simulation: Simulation, rank: int, held: Mapping[int, Held], factor: float
) -> Iterator[Event]:
    for time, level in curve(simulation, rank, held):
        yield {
            "ph": "C",
            "pid": rank,
            "name": "bytes held",
            "ts": time * factor,
            "args": {"activations": level.activations, "gathered": level.gathered},
        }
