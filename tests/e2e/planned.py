"""Compare what ranks held in a run with what ``pp-precompile plan`` says of the build."""

import json
from collections.abc import Callable
from pathlib import Path

from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.bubble import bubble_of
from pp_precompile.graph.runnable import simulated
from pp_precompile.graph.step_plan import StepPlan, plan_step
from pp_precompile.graph.times import UNIT_TIMES, read_times
from pp_precompile.store.store import open_store
from tests.e2e.launch import Result


def planned(store: Path, wanted: Callable[[Manifest], bool]) -> tuple[StepPlan, ScheduleTable]:
    """Return plan and schedule of the builds that are ``wanted``: all must have the same."""
    builds = open_store(store, create=False).builds
    found = [build for build in map(builds.read, builds.ids()) if wanted(build)]
    assert found, "the job left no build"
    plans = [
        plan_step(build, simulated(build.schedule, what="the build"), UNIT_TIMES) for build in found
    ]
    assert all((plan.ranks, plan.stages) == (plans[0].ranks, plans[0].stages) for plan in plans)
    return plans[0], found[0].schedule


def check_times(result: Result, schedule: ScheduleTable) -> None:
    """What all ranks wrote of their actions' times is enough to simulate the step."""
    files = [
        (f"times_{rank}.json", json.dumps(result.rank(rank)["times"]).encode())
        for rank in range(len(schedule.stages_of_rank))
    ]
    times = read_times(files)
    assert all(seconds > 0 for own in times.stages.values() for seconds in own.values())
    assert 0 <= bubble_of(simulated(schedule, times, what="the job's schedule")) < 1


def check_held(result: Result, plan: StepPlan) -> None:
    """Compare the peaks of every step on every rank with the plan, byte by byte."""
    columns = plan.world_size // len(plan.ranks)
    assert len(result.ranks) == plan.world_size
    for rank in result.ranks:
        of_rank = plan.ranks[rank // columns]
        expected = {
            "activations": of_rank.activation_bytes,
            "gathered": of_rank.gathered_bytes,
            "both": of_rank.peak_bytes,
            "left": 0,
        }
        steps = result.rank(rank)["held"]
        assert steps == [expected] * len(result.rank(rank)["losses"])
        assert of_rank.activation_bytes > 0
