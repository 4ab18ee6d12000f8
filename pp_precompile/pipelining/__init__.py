"""Precompiled stages for pipelines of ``torch.distributed.pipelining``, without torchtitan.

:func:`build` compiles all stages in one process; :func:`stage` and :func:`stages` give a rank its
own as torch's ``PipelineStage``, for any of torch's schedules. :func:`file_schedule` runs them
under a schedule of one's own.
"""

from pp_precompile.pipelining.build import build
from pp_precompile.pipelining.file_schedule import file_schedule
from pp_precompile.pipelining.start import stage, stages

__all__ = ["build", "file_schedule", "stage", "stages"]
