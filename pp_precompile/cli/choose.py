"""Which builds of a store a command is about."""

from pp_precompile.cli.output import SHORT
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import StaleBuildError, StoreError, Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.store.store import Store

_LISTED = 10
"""Most builds that an error lists."""


def all_or_one(store: Store, prefix: str | None) -> list[Digest]:
    """Return the build that ``prefix`` names, or all builds if it is None.

    Raises:
        StoreError: PPC207 if there is no such build, or no build at all.
    """
    if prefix is not None:
        return [store.builds.resolve(prefix)]
    ids = store.builds.ids()
    if not ids:
        raise StoreError(
            "PPC207",
            "the store holds no build",
            expected="a build",
            found=f"none in {store.place}",
            hint="build into it with 'pp-precompile build'",
            exit_code=2,
        )
    return ids


def only(store: Store, prefix: str | None) -> Digest:
    """Return the build that ``prefix`` names, or the only build if it is None.

    Raises:
        StoreError: PPC207 if that leaves none or more than one.
    """
    ids = all_or_one(store, prefix)
    if len(ids) == 1:
        return ids[0]
    listed = "".join(f"\n    {build}" for build in ids[:_LISTED])
    raise StoreError(
        "PPC207",
        f"the store holds {len(ids)} builds, and this command is about one",
        expected="--build with the first digits of one build's id",
        found=f"no --build; there are:{listed}",
        hint="'pp-precompile ls STORE' tells them apart",
        exit_code=2,
    )


def built(store: Store, prefix: str | None, *, rank: int | None = None) -> Manifest:
    """Return the build that ``prefix`` names, or the only build if it is None.

    With a global ``rank``, return it as that rank has it, of several variants.

    Raises:
        StoreError: PPC207 as :func:`only`, and for a build that cannot be read.
        StaleBuildError: PPC105 if the job has no such rank.
    """
    manifest = store.builds.read(only(store, prefix))
    return manifest if rank is None else view(manifest, rank)


def view(manifest: Manifest, rank: int) -> Manifest:
    """Return a build as global ``rank`` has it, of several variants.

    Raises:
        StaleBuildError: PPC105 if the job has no such rank.
    """
    check_below(manifest, "rank", rank, manifest.mesh.world_size, Where(rank=rank))
    return manifest.view(rank)


def check_below(manifest: Manifest, what: str, number: int, count: int, where: Where) -> None:
    """Refuse a number of a rank or stage that the build does not have, with PPC105."""
    if not 0 <= number < count:
        raise StaleBuildError(
            "PPC105",
            f"build {manifest.build_id[:SHORT]} has no {what} {number}",
            where=where,
            expected=f"0 to {count - 1}",
            found=number,
            hint="choose one of these",
        )
