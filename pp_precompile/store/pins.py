"""Builds that are kept whatever a collector is told: one empty file each, ``pins/BUILD``."""

from pp_precompile.contract.digest import Digest, is_digest
from pp_precompile.contract.errors import UsageError
from pp_precompile.store import atomic
from pp_precompile.store.failures import unreadable
from pp_precompile.store.store import Store

FOLDER = "pins"


def pinned(store: Store) -> set[Digest]:
    """Return the ids of pinned builds, whether they are there or not.

    Raises:
        StoreError: PPC201 if the pins cannot be read.
    """
    folder = store.root / FOLDER
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise unreadable(folder, error) from error
    return {Digest(name) for name in names if is_digest(name)}


def pin(store: Store, build: Digest) -> None:
    """Keep a build from being deleted.

    Raises:
        UsageError: PPC001 for a remote store, which has no pins.
        StoreError: PPC202.
    """
    if store.remote is not None:
        raise UsageError(
            "PPC001",
            "builds of a remote store cannot be pinned",
            expected="a folder",
            found=store.place,
            hint="name the builds to keep: 'pp-precompile gc STORE --keep ID'",
        )
    atomic.write(store.root / FOLDER / build, b"")


def unpin(store: Store, build: Digest) -> None:
    """Take a pin away; it is no error if there is none.

    Raises:
        StoreError: PPC202.
    """
    atomic.remove(store.root / FOLDER / build)
