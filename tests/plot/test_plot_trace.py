"""Traces: each action once, counters as in the plan, and the form that viewers read."""

import json
from typing import Any

import pytest

from pp_precompile.graph.held import held
from pp_precompile.graph.simulate import simulate
from pp_precompile.graph.step_plan import plan_step
from pp_precompile.graph.times import UNIT_TIMES
from pp_precompile.plot.trace import trace
from tests.graph.builds import PP4, load

SPLIT = load("llama3_pp2_fsdp2_dualpipev")


def events(build: Any, *, actions: bool = True, unit: str = "unit") -> list[dict[str, Any]]:
    holds = {stage.index: held(stage) for stage in build.stages}
    text = trace(simulate(build.schedule), holds, unit=unit, actions=actions, name="x")
    document = json.loads(text)
    assert document["otherData"] == {"schedule": "x", "unit": unit}
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def test_each_action_is_an_event_of_its_rank() -> None:
    found = [event for event in events(PP4) if event["ph"] == "X"]
    assert len(found) == 4 * 8 * 2
    [last] = [event for event in found if event["name"] == "0B7"]
    assert (last["pid"], last["ts"], last["dur"]) == (0, 31_000, 2_000)
    assert last["args"] == {"stage": 0, "microbatch": 7}


def test_seconds_are_microseconds_in_a_trace() -> None:
    [event] = [e for e in events(PP4, unit="second") if e.get("name") == "0B7"]
    assert event["ts"] == 31e6


@pytest.mark.parametrize("build", [PP4, SPLIT])
def test_counters_reach_the_peaks_of_the_plan(build: Any) -> None:
    plan = plan_step(build, simulate(build.schedule), UNIT_TIMES)
    for rank in plan.ranks:
        levels = [
            event["args"]
            for event in events(build)
            if event["ph"] == "C" and event["pid"] == rank.pp_rank
        ]
        assert max(level["activations"] for level in levels) == rank.activation_bytes
        assert max(level["gathered"] for level in levels) == rank.gathered_bytes
        assert levels[-1] == {"activations": 0, "gathered": 0}


def test_memory_alone_has_no_actions() -> None:
    assert {event["ph"] for event in events(PP4, actions=False)} == {"M", "C"}


def test_ranks_are_named() -> None:
    names = [e["args"]["name"] for e in events(SPLIT) if e["name"] == "process_name"]
    assert names == ["rank 0 (stages 0, 3)", "rank 1 (stages 1, 2)"]
