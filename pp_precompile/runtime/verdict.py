"""All ranks decide together, before anything loads, whether the stored build is used."""

import logging
from collections.abc import Iterator, Sequence

import msgspec

from pp_precompile.contract import encoding
from pp_precompile.contract.errors import AgreementError, MissingBuildError, PrecompileError
from pp_precompile.contract.key import differing
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.nearest import nearest
from pp_precompile.runtime.agreement import Agreement, ranks_on_hosts
from pp_precompile.runtime.job import Job
from pp_precompile.store.store import Store

logger = logging.getLogger(__name__)

EXCHANGE_SECONDS = 300.0
"""How long ranks wait for each other's requests: start-up skew, not compilation."""

_SHOWN = 6
"""Most factors that a log line names."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one rank tells the others before anyone loads. ``miss`` is empty if the build fits."""

    host: str
    build_id: str
    miss: str
    writable: bool


def exchange(job: Job, agreement: Agreement, miss: str, *, writable: bool) -> list[Request]:
    """Exchange requests, by rank; all ranks must ask for the same build.

    Raises:
        AgreementError: PPC403 naming the ranks, their hosts, and the factors that differ.
    """
    mine = Request(host=agreement.host, build_id=job.build_id, miss=miss, writable=writable)
    gathered = agreement.all_gather("request", encoding.encode(mine), timeout=EXCHANGE_SECONDS)
    requests = [encoding.decode(data, Request, what="a rank's request") for data in gathered]
    if len({request.build_id for request in requests}) > 1:
        factors = agreement.all_gather(
            "factors", encoding.encode(job.factors), timeout=EXCHANGE_SECONDS
        )
        raise _disagreement(
            [encoding.decode(data, dict[str, str], what="a rank's factors") for data in factors],
            [request.host for request in requests],
        )
    return requests


def _disagreement(factors: list[dict[str, str]], hosts: Sequence[str]) -> AgreementError:
    """Compare rank 0 with the first rank that differs; each side with all ranks that are alike."""
    other = next(rank for rank, theirs in enumerate(factors) if theirs != factors[0])
    differences = differing(factors[0], factors[other])
    sides = [
        ranks_on_hosts({r: hosts[r] for r, theirs in enumerate(factors) if theirs == factors[side]})
        for side in (0, other)
    ]
    expected, found = (
        "; ".join(f"{name} = {pair[side]}" for name, pair in differences.items()) for side in (0, 1)
    )
    return AgreementError(
        "PPC403",
        f"ranks 0 and {other} are not the same job",
        expected=f"{expected} ({sides[0]})",
        found=f"{found} ({sides[1]})",
        hint="start all ranks with the same arguments, software and kind of device",
    )


def refusal(job: Job, requests: Sequence[Request], store: Store | None) -> MissingBuildError:
    """Return the error that stops every rank of a strict job; ``requests`` say why, by rank."""
    have = {rank: r.host for rank, r in enumerate(requests) if not r.miss}
    return MissingBuildError(
        "PPC101",
        f"the policy is strict and {_misses(requests)}",
        expected=f"build {job.build_id} on the host of every rank",
        found=f"only {ranks_on_hosts(have)} can use it" if have else _nearest(job, store),
        hint="give all hosts the same whole store: share its folder, or copy it"
        if have
        else job.how_to_build,
    )


def explain(job: Job, requests: Sequence[Request], store: Store | None) -> None:
    """Log why this job compiles, and which stored build comes nearest."""
    logger.warning(
        "no stored build fits, compiling: %s (build %s); %s",
        _misses(requests),
        job.build_id[:12],
        _nearest(job, store),
    )


def _misses(requests: Sequence[Request]) -> str:
    """Say which ranks, on which hosts, have no build that fits, and why the first of them."""
    without = {rank: r.host for rank, r in enumerate(requests) if r.miss}
    first = min(without)
    return (
        f"{len(without)} of {len(requests)} rank(s) have no build that fits, "
        f"{ranks_on_hosts(without)}; rank {first}: {requests[first].miss}"
    )


def _nearest(job: Job, store: Store | None) -> str:
    try:
        near = nearest(job.factors, _readable(store)) if store else None
    except PrecompileError as error:
        # It only helps to understand a decision that is taken: a dead server must not undo it.
        return f"the stored builds cannot be listed: {error.message}"
    if near is None:
        return "the store holds no build"
    if not near.differs:
        return f"build {near.build[:12]} is the one asked for, but cannot be used"
    shown = [f"{d.factor}: {d.stored} there, {d.asked} here" for d in near.differs[:_SHOWN]]
    rest = len(near.differs) - len(shown)
    more = f" and {rest} more" if rest > 0 else ""
    return f"the nearest build {near.build[:12]} differs in {'; '.join(shown)}{more}"


def _readable(store: Store) -> Iterator[Manifest]:
    for build in store.builds.ids():
        try:
            yield store.builds.read(build)
        except PrecompileError as error:
            logger.warning("passing over a build: %s", error)
