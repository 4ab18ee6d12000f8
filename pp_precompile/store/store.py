"""A store: blobs, program entries and builds, in one folder or behind one URL."""

from collections.abc import Sequence
from pathlib import Path

from pp_precompile.contract.errors import StoreError
from pp_precompile.store import atomic, safety
from pp_precompile.store.blobs import Blobs
from pp_precompile.store.builds import Builds
from pp_precompile.store.failures import unreadable, unwritable
from pp_precompile.store.keys import PublicKey
from pp_precompile.store.location import cache_folder, is_url
from pp_precompile.store.programs import Programs
from pp_precompile.store.reading import check_folders
from pp_precompile.store.remote import Remote
from pp_precompile.store.shelf import BUILDS, KINDS
from pp_precompile.store.signatures import Trust


class Store:
    """The three shelves of one store; use :func:`open_store`, which checks the folder first."""

    def __init__(
        self, root: Path, remote: Remote | None = None, trust: Trust | None = None
    ) -> None:
        self.root = root
        self.remote = remote
        self.trust = trust
        self.blobs = Blobs(root, remote)
        self.programs = Programs(root, self.blobs, remote)
        self.builds = Builds(root, self.blobs, remote, trust)

    @property
    def place(self) -> str:
        """Where the store is, for messages: a folder or a URL."""
        return self.remote.url if self.remote else str(self.root)

    def past_cache(self) -> "Store":
        """Return the store as it is where it lies, whatever this host has in its cache."""
        if self.remote is None:
            return self
        return Store(self.root, self.remote.past_cache(), self.trust)

    def check_writable(self) -> None:
        """Fail now rather than after minutes of compiling, if nothing can be written.

        Raises:
            StoreError: PPC202.
        """
        for kind in KINDS:
            atomic.check_writable(self.root / kind.folder)
        if self.remote:
            self.remote.check_writable()


def open_store(
    location: str | Path, *, create: bool, trusted: Sequence[PublicKey] | None = None
) -> Store:
    """Return the store at ``location`` after checking that it is safe to load code from.

    Args:
        location: the store's folder, which may be a link to it, or an fsspec URL; what is read
            from a URL is kept in this host's cache, which has to belong to this user alone.
        create: whether to make the folders that are missing.
        trusted: if not None, builds that none of these keys signed are refused.

    Raises:
        StoreError: PPC201 if it is not a store or cannot be read, PPC202 if it cannot be made,
            PPC208 if it is not safe (see ``safety``).
        UsageError: PPC001 for a URL that cannot be used.
    """
    trust = None if trusted is None else Trust(tuple(trusted))
    remote = Remote(str(location)) if is_url(location) else None
    root = cache_folder(str(location)) if remote else Path(location)
    if remote:
        _make_cache(root)
    if create or remote:
        _make_folders(root)
    for kind in KINDS:
        _check(root, kind.folder, required=kind is BUILDS)
    return Store(root, remote, trust)


def existing_store(location: str | Path) -> Store | None:
    """Return the store at ``location``, or None if :func:`open_store` would have to create it.

    Raises:
        StoreError: PPC201 or PPC208 if it is there, but must not be used.
    """
    if not is_url(location):
        try:
            (Path(location) / BUILDS.folder).lstat()
        except FileNotFoundError:
            return None
        except OSError:
            pass  # opening it says what is wrong
    return open_store(location, create=False)


def _make_cache(root: Path) -> None:
    try:
        atomic.make_folder(root, private=True)
        status = root.lstat()
    except OSError as error:
        raise unwritable(root, error) from error
    safety.check_cache(status, root)


def _make_folders(root: Path) -> None:
    for folder in (root, *(root / kind.folder for kind in KINDS)):
        try:
            atomic.make_folder(folder)
        except OSError as error:
            raise unwritable(folder, error) from error


def _check(root: Path, folder: str, *, required: bool) -> None:
    try:
        check_folders(root, folder)
    except FileNotFoundError as error:
        # Some copying tools leave empty folders out; without builds it is no store.
        if required:
            raise _no_store(root) from error
    except OSError as error:
        raise unreadable(root / folder, error) from error


def _no_store(root: Path) -> StoreError:
    found = "a folder without it" if root.is_dir() else "no such folder"
    return StoreError(
        "PPC201",
        f"{root} is not a store",
        expected=f"a folder with a folder {BUILDS.folder!r} in it",
        found=found,
        hint="check the path, or build into it first with 'pp-precompile build'",
        exit_code=2,
    )
