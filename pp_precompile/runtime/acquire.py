"""Get this rank's stage programs, from the store or by compiling them, all ranks alike."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from pp_precompile.contract import encoding
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import (
    MissingBuildError,
    StaleBuildError,
    StoreError,
)
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.check import check_build
from pp_precompile.graph.columns import group_columns
from pp_precompile.graph.refuse import refuse
from pp_precompile.runtime.agreement import Agreement
from pp_precompile.runtime.binding import check_module
from pp_precompile.runtime.job import Job, Policy, checked_manifest
from pp_precompile.runtime.loader import LoadedStage, ReadBlob, load_stages
from pp_precompile.runtime.sinks import MemorySink, StoreSink
from pp_precompile.runtime.verdict import EXCHANGE_SECONDS, exchange, explain, refusal
from pp_precompile.runtime.verified import VerifiedBlobs
from pp_precompile.stage.portable import register_logical_groups
from pp_precompile.stage.programs import Progress, TracedStage, compile_stages
from pp_precompile.store.keys import PublicKey, read_public
from pp_precompile.store.location import is_url
from pp_precompile.store.store import Store, open_store

logger = logging.getLogger(__name__)

Span = Callable[[str], contextlib.AbstractContextManager[object]]
"""Marks a part of the work, by name, in whatever the front end keeps of it."""

COMPILE_SECONDS = 7200.0
"""How long a rank waits for another to compile."""


@dataclass(frozen=True, kw_only=True)
class Acquired:
    """This rank's stages, and how they were come by (seconds of wall time)."""

    stages: Mapping[int, LoadedStage]
    manifest: Manifest
    compiled: bool
    agree_seconds: float
    build_seconds: float
    load_seconds: float


def acquire(
    job: Job,
    modules: Mapping[int, nn.Module],
    *,
    location: str,
    policy: Policy,
    agreement: Agreement,
    trusted: Sequence[str] = (),
    order: Sequence[int] | None = None,
    span: Span = contextlib.nullcontext,
) -> Acquired:
    """Return the loaded programs of this rank's stages.

    Args:
        job: the job, the same on every rank.
        modules: this rank's parallelized stage modules by stage index.
        location: the store's folder or URL.
        policy: what to do if no build fits.
        agreement: how ranks agree.
        trusted: files of public keys, of which one must have signed a build; none asks for none.
        order: for each rank of ``job.mesh``, its number in ``agreement``; the same if None.
        span: is entered around each part of the work.

    Raises:
        PrecompileError: on every rank, if any rank cannot go on.
    """
    start = time.perf_counter()
    order = range(job.mesh.world_size) if order is None else order
    with agreement.guard(), span("precompile_acquire"):
        register_logical_groups(job.meshes())
        keys = read_public(trusted) if trusted else None
        store, writable = _open(location, policy, keys)
        with span("precompile_validate"):
            found = _look_up(job, store, location, modules, order.index(agreement.rank))
        with span("precompile_wait"):
            requests = exchange(job, agreement, found.miss, writable=writable)
        misses = any(request.miss for request in requests)
        if misses and policy == "strict":
            raise refusal(job, requests, store)
        if store is not None and not misses:
            _note_use(store, job.build_id, agreement.rank)
        agreed = time.perf_counter()
        if misses:
            explain(job, requests, store)
            shared = store if all(request.writable for request in requests) else None
            with span("precompile_build"):
                manifest, read = _build_into(shared, job, modules, agreement, order)
        else:
            assert found.manifest is not None
            assert found.blobs is not None
            manifest, read = found.manifest, found.blobs.take
        built = time.perf_counter()
        with span("precompile_load"):
            stages = load_stages([manifest.stages[i] for i in modules], read, job.unpack)
        with span("precompile_wait"):
            agreement.all_gather("loaded", b"", timeout=EXCHANGE_SECONDS)
    return Acquired(
        stages=stages,
        manifest=manifest,
        compiled=misses,
        agree_seconds=agreed - start,
        build_seconds=built - agreed,
        load_seconds=time.perf_counter() - built,
    )


def _open(
    location: str, policy: Policy, keys: Sequence[PublicKey] | None
) -> tuple[Store | None, bool]:
    """Return the store, if there is one, and whether a build could be saved in it.

    A strict job saves nothing, so for it a store that cannot be written is as good as any. A job
    that trusts certain keys saves nothing either: it has none to sign with.
    """
    if policy == "strict":
        there = is_url(location) or Path(location).exists()
        return (open_store(location, create=False, trusted=keys) if there else None), True
    if keys is not None:
        return _read_only(location, keys), False
    try:
        store = open_store(location, create=True)
        store.check_writable()
    except StoreError as error:
        if error.code != "PPC202":
            raise
        logger.warning("what is compiled will not be saved: %s", error)
        return _read_only(location, keys), False
    return store, True


def _read_only(location: str, keys: Sequence[PublicKey] | None) -> Store | None:
    """Return the store for reading, None if the folder is not a store (yet)."""
    try:
        return open_store(location, create=False, trusted=keys)
    except StoreError as error:
        if error.code != "PPC201":
            raise
        return None


def _note_use(store: Store, build_id: Digest, rank: int) -> None:
    """Keep a collector from taking the build for one that nobody uses; one rank is enough."""
    if rank == 0:
        store.builds.use(build_id)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The fitting build as this rank has it, with its blobs, or why there is none."""

    manifest: Manifest | None = None
    blobs: VerifiedBlobs | None = None
    miss: str = ""


def _look_up(
    job: Job, store: Store | None, location: str, modules: Mapping[int, nn.Module], rank: int
) -> _Found:
    """Look for the build that fits.

    Everything that this rank will load is read and verified here, before ranks agree, and its
    modules are compared with what the stages were compiled for.
    """
    if store is None:
        return _Found(miss=f"there is no store at {location}")
    blobs = VerifiedBlobs(store.blobs.get)
    try:
        manifest = store.builds.read(job.build_id).view(rank)
        findings = check_build(
            manifest, host=job.environment, read_blob=blobs.check, stages=set(modules)
        )
        refuse(findings, f"build {job.build_id[:12]}")
        for index, module in modules.items():
            check_module(module, manifest.stages[index], device=job.device.type)
    except (MissingBuildError, StaleBuildError, StoreError) as error:
        return _Found(miss=str(error))
    return _Found(manifest=manifest, blobs=blobs)


def _build_into(
    store: Store | None,
    job: Job,
    modules: Mapping[int, nn.Module],
    agreement: Agreement,
    order: Sequence[int],
) -> tuple[Manifest, ReadBlob]:
    """Compile what is missing and publish it, or keep it in memory if there is no store.

    Returns the build as this rank has it, and what reads its blobs.
    """
    sink: StoreSink | MemorySink
    sink = StoreSink(store, patient=True) if store else MemorySink()
    manifest = _build(job, modules, sink, agreement, order, shared=store is not None)
    if store:
        _publish(manifest, store, agreement)
    return manifest.view(order.index(agreement.rank)), sink.read


def _build(
    job: Job,
    modules: Mapping[int, nn.Module],
    sink: StoreSink | MemorySink,
    agreement: Agreement,
    order: Sequence[int],
    *,
    shared: bool,
) -> Manifest:
    """Trace this rank's stages, compile this rank's share, and gather all stages' records."""
    traced = job.trace_all(modules)
    mine = _owned(traced, agreement) if shared else None
    entries = compile_stages(
        traced.values(),
        sink,
        started=lambda stage, role: agreement.check(),
        done=_log_program,
        mine=(lambda key: key in mine) if mine is not None else (lambda key: True),
    )
    if shared:
        entries = _share(entries, agreement)
    records = [stage.record(entries) for stage in traced.values()]
    gathered = agreement.all_gather("records", encoding.encode(records), timeout=EXCHANGE_SECONDS)
    stages, *variants = group_columns(
        [encoding.decode(gathered[i], list[StageRecord], what="a rank's stages") for i in order],
        columns=job.mesh.columns,
    )
    return checked_manifest(job, stages.stages, tuple(variants))


def _log_program(progress: Progress) -> None:
    how = "reused" if progress.reused else "compiled"
    stage, role, seconds = progress.stage, progress.role, progress.seconds
    logger.info("stage %d %s: %s in %.1f s", stage, role, how, seconds)


def _owned(traced: Mapping[int, TracedStage], agreement: Agreement) -> set[Digest]:
    """Return the keys that this rank compiles: each distinct program has one rank, the lowest."""
    keys = sorted({p.key for stage in traced.values() for _, p in stage.keyed})
    gathered = agreement.all_gather("keys", encoding.encode(keys), timeout=EXCHANGE_SECONDS)
    taken: set[str] = set()
    for data in gathered[: agreement.rank]:
        taken.update(encoding.decode(data, list[str], what="a rank's keys"))
    return {key for key in keys if key not in taken}


def _share(
    entries: Mapping[Digest, ProgramEntry], agreement: Agreement
) -> dict[Digest, ProgramEntry]:
    """Return the entries of all ranks; waits until every rank has compiled its share."""
    mine = encoding.encode(list(entries.values()))
    shared: dict[Digest, ProgramEntry] = {}
    for data in agreement.all_gather("compiled", mine, timeout=COMPILE_SECONDS):
        for entry in encoding.decode(data, list[ProgramEntry], what="a rank's programs"):
            shared[entry.key] = entry
    return shared


def _publish(manifest: Manifest, store: Store, agreement: Agreement) -> None:
    """Let rank 0 write the manifest; the others go on once it is there."""

    def publish() -> bytes:
        store.builds.publish(manifest)
        logger.info("published build %s", manifest.build_id[:12])
        return b"published"

    agreement.broadcast("published", publish, timeout=EXCHANGE_SECONDS)
