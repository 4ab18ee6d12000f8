"""``benchmarks.recorded_train``, and where the time of every step went.

Started by torchrun in place of ``pp_precompile.train``, with the same arguments. Each rank writes
``steps_N.json`` into the folder ``$PP_PRECOMPILE_PHASES``. All ranks enter each
``forward_backward_step`` together: the ranks meet in a barrier just before, which is not timed.

What counts as a compute action is the same for everyone: the stage's forward, the loss, the
backward in one or two parts, unsharding and reducing. torch's schedules run them as methods of the
stage; GraphPP as functions that it registers for each kind of action, which also wait for their
messages. Both wait through one function of torch, so what is waited can be taken off.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.step_clock import StepClock
from pp_precompile.titan import cpu_platform


def main() -> int:
    """Train, write the steps, and return training's exit code."""
    if cpu_platform.needed():
        cpu_platform.enable()
    clock = StepClock()
    _time_waits(clock)
    _time_programs(clock)
    _time_steps(clock)
    from benchmarks.recorded_train import main as train

    code = train()
    folder = os.environ["PP_PRECOMPILE_PHASES"]
    Path(folder, f"steps_{os.environ['RANK']}.json").write_text(json.dumps(clock.steps))
    return code


def _time_waits(clock: StepClock) -> None:
    from torch.distributed.pipelining import schedules
    from torchtitan.experiments.graph_trainer.graph_pp import runner

    schedules._wait_batch_p2p = runner._wait_batch_p2p = clock.wait(schedules._wait_batch_p2p)


def _time_programs(clock: StepClock) -> None:
    """Time our programs from the moment they are loaded, and GraphPP's graphs."""
    from torchtitan.experiments.graph_trainer.graph_pp import graph_builder

    from pp_precompile.runtime import loader

    load = loader.load_program
    loader.load_program = lambda *args: clock.program(load(*args))
    graph_builder._execute_graph_module = clock.program(graph_builder._execute_graph_module)


def _time_steps(clock: StepClock) -> None:
    """Time every ``forward_backward_step``; from the first one on also its actions."""
    import torch

    from pp_precompile.titan.trainer import PrecompileTrainer

    original = PrecompileTrainer.forward_backward_step
    timed = clock.step(original)

    def step(self: Any, **inputs: Any) -> Any:
        if not clock.steps:
            _time_actions(clock, self.pp_schedule)
        torch.distributed.barrier()
        return timed(self, **inputs)

    PrecompileTrainer.forward_backward_step = step  # type: ignore[method-assign]


def _time_actions(clock: StepClock, pipeline: Any) -> None:
    """Time the compute actions of torch's schedule, or of GraphPP around one."""
    schedule = getattr(pipeline, "schedule", pipeline)
    functions = getattr(schedule, "_comp_type_to_function_map", {})
    for kind, function in functions.items():
        functions[kind] = clock.action(kind.value, function)
    if schedule is not pipeline:
        # GraphPP adds the gradients to the parameters after the last action.
        pipeline._accumulate_stage_sharded_grads = clock.action(
            "REDUCE_GRAD", pipeline._accumulate_stage_sharded_grads
        )
        return
    schedule._maybe_compute_loss = clock.action("L", schedule._maybe_compute_loss)
    stages = schedule._stages if hasattr(schedule, "_stages") else [schedule._stage]
    for stage in stages:
        stage.forward_one_chunk = clock.action("F", stage.forward_one_chunk)
        stage.backward_one_chunk = clock.action(_kind_of_backward, stage.backward_one_chunk)
        stage.backward_weight_one_chunk = clock.action("W", stage.backward_weight_one_chunk)
        stage.perform_reduce_grad = clock.action("REDUCE_GRAD", stage.perform_reduce_grad)


def _kind_of_backward(*args: Any, full_backward: bool = True, **kwargs: Any) -> str:
    return "B" if full_backward else "I"


if __name__ == "__main__":
    sys.exit(main())
