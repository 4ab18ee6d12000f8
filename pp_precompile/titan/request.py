"""What a job asks of a stored build, from its configuration, for the torch-free checks."""

from typing import Any

from pp_precompile.graph.request import Request
from pp_precompile.titan.job import Job
from pp_precompile.titan.offline import offline_job


def evaluate(config: Any) -> Request:
    """Return what the job of ``config`` asks for; enters and leaves a fake process group.

    Raises:
        PrecompileError: for a configuration that cannot work, or if a process group exists.
    """
    with offline_job(config) as (job, _):
        return request(job)


def request(job: Job) -> Request:
    """Return what ``job`` asks for."""
    return Request(
        factors=job.factors,
        mesh=job.mesh,
        split=job.split,
        schedule=job.schedule,
        keywords=frozenset(item.name for item in job.inputs.keywords()),
    )
