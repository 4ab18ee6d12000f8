"""What is fuzzed: reading a manifest, and all that is done with an accepted one before loading."""

import resource
import time
from typing import NamedTuple

from pp_precompile.contract.environment import Environment
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.check import check_build, check_request, selected
from pp_precompile.graph.finding import errors
from pp_precompile.graph.plan import plan_of
from pp_precompile.graph.refuse import refuse
from pp_precompile.graph.request import request_of
from tests.manifests import make_environment

HOST: Environment = make_environment()


MAX_ERROR = 200_000
"""Most characters of an error: one screen for each of the findings that it lists."""


class Outcome(NamedTuple):
    """What became of one input: the code of its refusal, or ``fits``, and the seconds it took."""

    code: str
    accepted: bool
    seconds: float

    def __str__(self) -> str:
        return f"{'accepted' if self.accepted else 'refused'} {self.code}"


def read(data: bytes) -> Outcome:
    """Read ``data`` as a manifest and look at it as a job does; lets nothing but our errors pass.

    Whatever else is raised is a bug, as is a process that dies of too much memory or time.
    """
    start = time.process_time()
    accepted = False
    try:
        manifest = Manifest.from_bytes(data, what="the input")
        accepted = True
        assert manifest.to_bytes() == data
        use(manifest)
    except PrecompileError as error:
        code, size = error.code, len(str(error))
    else:
        code, size = "fits", 0
    assert size < MAX_ERROR
    return Outcome(code, accepted, time.process_time() - start)


def use(manifest: Manifest) -> None:
    """Do with an accepted manifest what comes before anything in its blobs is looked at.

    Raises:
        PrecompileError: if a check finds an error.
    """
    assert len(manifest.views()) == 1 + len(manifest.variants)
    assert all(ref.size >= 0 for ref in manifest.blobs().values())
    ranks = _some_ranks(manifest)
    for rank in ranks:
        assert all(stage in manifest.view(rank).stages for stage in manifest.stages_of(rank))
    assert selected(manifest, None, ranks) <= set(range(len(manifest.stages)))
    plan = plan_of(manifest)
    assert len(plan.stages) == len(manifest.stages)
    check_request(manifest, request_of(manifest))
    findings = check_build(manifest, host=HOST, ranks=ranks)
    # No two hosts are one: what the rest of the checks say is what counts.
    refuse([finding for finding in errors(findings) if finding.code != "PPC102"], "the input")


def _some_ranks(manifest: Manifest) -> list[int]:
    """The first and last rank, and the first ones of columns that have variants."""
    columns = {column for variant in manifest.variants[:4] for column in variant.columns[:2]}
    return sorted({0, manifest.mesh.world_size - 1, *columns})


def limit(*, memory: int, seconds: int | None = None) -> None:
    """Let this process die, rather than the machine, of what an input makes it do.

    Args:
        memory: most bytes of address space.
        seconds: most seconds of processor time, from the start of the process.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
