"""Copy builds from one store to another, folder or remote, in either direction.

Blobs first, then signatures, the manifest last, so that the target has a build whole and signed or
not at all. What is there already is not sent again, so a copy that broke off is finished by
starting it again. Program entries are made from the manifest: whatever the source's index says, a
builder at the target finds only programs of builds that were copied.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.program import BlobRef
from pp_precompile.store.blobs import Blobs
from pp_precompile.store.shelf import BLOBS
from pp_precompile.store.signatures import Received
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
    verify: bool = False,
    progress: Progress = lambda done, of: None,
) -> Copied:
    """Copy ``builds`` with their blobs, program entries and signatures.

    Every blob is checked against its digest on the way, every manifest as at reading.

    Args:
        source: where the builds are.
        target: where they go.
        builds: their ids.
        jobs: blobs on the way at a time.
        verify: whether to read what a remote target has already, and to replace what is damaged;
            without it a blob of the right size is believed. What a folder has is always read.
        progress: called after each blob.

    Raises:
        PrecompileError: what reading ``source`` or writing ``target`` raises; the target is sound
            then, and has every build that was complete.
    """
    # As they are now: this host's copies of manifest and signatures may not be of one age.
    origin = source.past_cache()
    manifests = [origin.builds.read(build) for build in builds]
    refs = {digest: ref for manifest in manifests for digest, ref in manifest.blobs().items()}
    total = sum(ref.size for ref in refs.values())
    done = sent = sent_bytes = 0
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        results = pool.map(
            lambda ref: (ref, _copy_blob(source, target, ref, verify)), refs.values()
        )
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
    entries = {key: entry for manifest in manifests for key, entry in manifest.entries().items()}
    target.past_cache().programs.adopt(entries, verify=verify or target.remote is None)
    for manifest in manifests:
        signatures = origin.builds.signatures.of(manifest.build_id)
        received = Received(signatures=signatures, trust=source.trust, replace=verify)
        target.builds.publish(manifest, received)
    return Copied(
        builds=tuple(builds),
        blobs=len(refs),
        blob_bytes=total,
        sent=sent,
        sent_bytes=sent_bytes,
    )


def _copy_blob(source: Store, target: Store, ref: BlobRef, verify: bool) -> bool:
    """Copy one blob unless it is there; returns whether it had to be sent."""
    if target.remote is not None:
        blobs = target.past_cache().blobs
        if blobs.is_whole(ref) if verify else blobs.has(ref):
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
