"""What a rank compiled and loaded, for the report of its run."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

COUNTS: dict[str, str] = {
    "compiled": "programs compiled",
    "loaded": "programs loaded",
    "bytes_loaded": "bytes loaded",
}
"""Counts of all ranks together, in the order they are shown, with what to call them."""


def write_counts(folder: Path, rank: int) -> None:
    """Write this process's counters as those of ``rank``."""
    from pp_precompile.stage.counters import counters

    counts = json.dumps(dataclasses.asdict(counters))
    (folder / f"counts_{rank}.json").write_text(counts, encoding="utf-8")


def read_counts(folder: Path) -> Mapping[str, int]:
    """Return the sums over all ranks that wrote any; zeros if none did."""
    ranks = [json.loads(file.read_text()) for file in folder.glob("counts_*.json")]
    return {name: sum(rank[name] for rank in ranks) for name in COUNTS}
