"""Files that a killed writer or an unfinished download left in a store's folders."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from pp_precompile.store import atomic
from pp_precompile.store.shelf import KINDS
from pp_precompile.store.store import Store

_ENDINGS = (".tmp", ".part")


def leftovers(store: Store, *, older_than: float = 0.0) -> Iterator[tuple[Path, int]]:
    """Yield path and size in bytes of every leftover last written ``older_than`` seconds ago.

    A writer that still lives has one too, until its file has its final name.
    """
    latest = time.time() - older_than
    for kind in KINDS:
        for folder, _, names in os.walk(store.root / kind.folder):
            for name in names:
                path = Path(folder, name)
                if not (name.startswith(".") and name.endswith(_ENDINGS)):
                    continue
                try:
                    status = path.lstat()
                except FileNotFoundError:
                    continue
                if status.st_mtime <= latest:
                    yield path, status.st_size


def remove_leftovers(store: Store, *, older_than: float) -> list[int]:
    """Delete old leftovers and return their sizes in bytes.

    Raises:
        StoreError: PPC202 if one cannot be deleted.
    """
    sizes = []
    for path, size in leftovers(store, older_than=older_than):
        atomic.remove(path)
        sizes.append(size)
    return sizes
