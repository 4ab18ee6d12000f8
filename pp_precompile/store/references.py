"""What a store's builds and program entries refer to: the base of checking, counting and deleting.

An object that cannot be read is reported, never passed over in silence: what it refers to is
unknown, so nothing may be deleted on its account.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import CorruptError, PrecompileError, UntrustedError
from pp_precompile.contract.program import BlobRef
from pp_precompile.graph.finding import Finding, from_error
from pp_precompile.store.store import Store


@dataclass(frozen=True, kw_only=True)
class References:
    """The blobs that each build and each program entry needs, and what could not be read."""

    builds: Mapping[Digest, Mapping[Digest, BlobRef]]
    entries: Mapping[Digest, BlobRef]
    findings: tuple[Finding, ...]
    """Of builds and entries that were not read: damaged, or of another format."""

    damaged_entries: frozenset[Digest]

    def of_builds(self) -> set[Digest]:
        """Return the digest of every blob that a build needs."""
        return {digest for refs in self.builds.values() for digest in refs}


def references(store: Store) -> References:
    """Read every manifest and program entry of ``store``.

    Raises:
        StoreError: PPC201 if a folder cannot be read, PPC211 if a remote store fails.
    """
    builds: dict[Digest, Mapping[Digest, BlobRef]] = {}
    entries: dict[Digest, BlobRef] = {}
    findings: list[Finding] = []
    damaged: set[Digest] = set()
    for build in store.builds.ids():
        try:
            builds[build] = store.builds.read(build).blobs()
        except (CorruptError, UntrustedError) as error:
            findings.append(from_error(error))
        except PrecompileError as error:
            if error.code != "PPC101":  # deleted since it was listed
                raise
    for key in store.programs:
        try:
            entry = store.programs.read(key)
        except CorruptError as error:
            findings.append(from_error(error))
            damaged.add(key)
            continue
        if entry is not None:
            entries[key] = entry.blob
    return References(
        builds=builds,
        entries=entries,
        findings=tuple(findings),
        damaged_entries=frozenset(damaged),
    )
