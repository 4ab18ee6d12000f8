"""Plan a build: trace every stage of a job and check that they fit, but compile nothing."""

from typing import Any

from torch import nn

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.program import BlobRef, ProgramEntry
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.plan import BuildPlan, plan_of
from pp_precompile.stage.programs import TracedStage
from pp_precompile.titan.job import Job
from pp_precompile.titan.offline import Listener, describe_build, trace_stages


def plan(config: Any, listener: Listener | None = None) -> BuildPlan:
    """Return what a build of ``config`` would make; needs neither a store nor a compiler.

    What a build finds wrong with its stages is found here too, before minutes of compiling.

    Raises:
        PrecompileError: for a job that cannot be built, or if a process group exists.
    """
    listener = listener or Listener()

    def traced(job: Job, model: nn.Module) -> tuple[StageRecord, ...]:
        # One stage at a time: only its description outlives the step, not its graphs.
        return tuple(_record(stage) for stage in trace_stages(job, model, listener))

    return plan_of(describe_build(config, traced))


def _record(stage: TracedStage) -> StageRecord:
    return stage.record({item.key: _stand_in(item.key) for _, item in stage.keyed})


def _stand_in(key: Digest) -> ProgramEntry:
    """Return an entry for a program without bytes; it never leaves this module."""
    return ProgramEntry(key=key, blob=BlobRef(digest=key, size=0), kernels=0)
