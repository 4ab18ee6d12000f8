"""Which kind of job a configuration describes."""

from typing import Any

import torch
from torch import nn

from pp_precompile.titan.config import CoreCompileConfig
from pp_precompile.titan.core_job import BlockJob
from pp_precompile.titan.job import Job, describe_job


def describe(config: Any, *, model: nn.Module, parallel_dims: Any, device: torch.device) -> Job:
    """Gather all facts of a job, for the front end that its configuration asks for.

    See :func:`pp_precompile.titan.job.describe_job`.
    """
    kind = _kind(config)
    return describe_job(config, model=model, parallel_dims=parallel_dims, device=device, kind=kind)


def runs_graph_pp(config: Any) -> bool:
    """Return whether graph_trainer's own passes make the programs: GraphPP's, or a whole step."""
    core = isinstance(config.compile, CoreCompileConfig)
    return not core and config.compile.precompile_engine == "graph_pp"


def _kind(config: Any) -> type[Job]:
    """Return the core trainer's blocks, or graph_trainer's stages, of one engine or the other."""
    if isinstance(config.compile, CoreCompileConfig):
        return BlockJob
    if not runs_graph_pp(config):
        return Job
    from pp_precompile.titan.graph_pp_job import GraphPPJob
    from pp_precompile.titan.graph_step_job import GraphStepJob

    return GraphPPJob if config.parallelism.pipeline_parallel_degree > 1 else GraphStepJob
