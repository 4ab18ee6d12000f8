"""A store: one folder with blobs, program entries and builds."""

from pathlib import Path

from pp_precompile.contract.errors import StoreError
from pp_precompile.store import atomic
from pp_precompile.store.blobs import Blobs
from pp_precompile.store.builds import Builds
from pp_precompile.store.failures import unreadable, unwritable
from pp_precompile.store.programs import Programs
from pp_precompile.store.reading import check_folders
from pp_precompile.store.shelf import BUILDS, KINDS


class Store:
    """The three shelves of one store; use :func:`open_store`, which checks the folder first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = Blobs(root)
        self.programs = Programs(root, self.blobs)
        self.builds = Builds(root, self.blobs)

    def check_writable(self) -> None:
        """Fail now rather than after minutes of compiling, if nothing can be written.

        Raises:
            StoreError: PPC202.
        """
        for kind in KINDS:
            atomic.check_writable(self.root / kind.folder)


def open_store(path: str | Path, *, create: bool) -> Store:
    """Return the store at ``path`` after checking that it is safe to load code from.

    Args:
        path: the store's folder, which may be a link to it.
        create: whether to make the folders that are missing.

    Raises:
        StoreError: PPC201 if it is not a store or cannot be read, PPC202 if it cannot be made,
            PPC208 if it is not safe (see ``safety``).
    """
    root = Path(path)
    if create:
        _make_folders(root)
    for kind in KINDS:
        _check(root, kind.folder, required=kind is BUILDS)
    return Store(root)


def existing_store(path: str | Path) -> Store | None:
    """Return the store at ``path``, or None if :func:`open_store` would have to create it.

    Raises:
        StoreError: PPC201 or PPC208 if it is there, but must not be used.
    """
    try:
        (Path(path) / BUILDS.folder).lstat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # opening it says what is wrong
    return open_store(path, create=False)


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
