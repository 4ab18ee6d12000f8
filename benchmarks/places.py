"""The folders that the runs of a measurement share."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs find what an earlier one left.

    ``store`` has this project's builds, ``cache`` is Inductor's cache of a job that ran before, and
    ``artifacts`` what ``torch.compiler.save_cache_artifacts`` gave on each of its ranks.
    """

    store: Path
    cache: Path
    artifacts: Path

    @classmethod
    def below(cls, folder: Path) -> "Places":
        """Return places in ``folder``; none of them is made."""
        return cls(store=folder / "store", cache=folder / "cache", artifacts=folder / "artifacts")
