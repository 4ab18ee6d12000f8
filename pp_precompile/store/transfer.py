"""Copy builds from one store to another, folder or remote, in either direction.

Blobs first, the manifest last, so that the target has a build whole or not at all. What is there
already is not sent again, so a copy that broke off is finished by starting it again.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import BlobRef
from pp_precompile.store.blobs import Blobs
from pp_precompile.store.shelf import BLOBS
from pp_precompile.store.store import Store

JOBS = 8
"""Blobs on the way at a time, unless said otherwise: most of a small one's time is waiting."""

Progress = Callable[[int, int], None]
"""Called after each blob with the bytes of all that are there by now, and of all."""


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a copy did; ``sent_bytes`` leaves out what was there already."""

    builds: tuple[Digest, ...]
    blobs: int
    blob_bytes: int
    sent: int
    sent_bytes: int


def copy(
    source: Store,
    target: Store,
    builds: Sequence[Digest],
    *,
    jobs: int = JOBS,
    progress: Progress = lambda done, of: None,
) -> Copied:
    """Copy ``builds`` with their blobs, program entries and signatures.

    Every blob is checked against its digest on the way, every manifest as at reading.

    Raises:
        PrecompileError: what reading ``source`` or writing ``target`` raises; the target is sound
            then, and has every build that was complete.
    """
    manifests = [source.builds.read(build) for build in builds]
    refs = {digest: ref for manifest in manifests for digest, ref in manifest.blobs().items()}
    total = sum(ref.size for ref in refs.values())
    done = sent = sent_bytes = 0
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        results = pool.map(lambda ref: (ref, _copy_blob(source, target, ref)), refs.values())
        try:
            for ref, was_sent in results:
                done += ref.size
                sent += was_sent
                sent_bytes += ref.size if was_sent else 0
                progress(done, total)
        except BaseException:
            # The rest is not begun: a full disk or a dead server would fail each of them.
            pool.shutdown(cancel_futures=True)
            raise
    _copy_entries(source, target, refs)
    for manifest in manifests:
        _publish(source, target, manifest)
    return Copied(
        builds=tuple(builds),
        blobs=len(refs),
        blob_bytes=total,
        sent=sent,
        sent_bytes=sent_bytes,
    )


def _copy_blob(source: Store, target: Store, ref: BlobRef) -> bool:
    """Copy one blob unless it is there; returns whether it had to be sent."""
    if target.remote is not None:
        if target.blobs.has(ref):
            return False
        # Past the target's cache on this host: the source is at hand.
        target.remote.write(BLOBS.parts(ref.digest), source.blobs.get(ref))
        return True
    there = target.blobs.has(ref)
    if source.remote is not None:
        # Straight into the target, where a broken download can go on.
        Blobs(target.root, source.remote).get(ref)
    else:
        target.blobs.put(source.blobs.get(ref))
    return not there


def _copy_entries(source: Store, target: Store, refs: Iterable[Digest]) -> None:
    """Copy the entries of copied blobs, so that builders at the target reuse the programs."""
    wanted, known = set(refs), set(target.programs)
    for key in source.programs:
        entry = source.programs.read(key) if key not in known else None
        if entry is not None and entry.blob.digest in wanted:
            target.programs.record(entry)


def _publish(source: Store, target: Store, manifest: Manifest) -> None:
    target.builds.publish(manifest)
    signatures = source.builds.signatures.of(manifest.build_id)
    if signatures:
        target.builds.signatures.put(manifest.build_id, signatures)
