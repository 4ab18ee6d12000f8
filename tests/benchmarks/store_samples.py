"""A measurement of the store made up for tests."""

from pathlib import Path

from benchmarks.store_contention import Crowd, Load
from benchmarks.store_fill import Filled
from benchmarks.store_git import Repository
from benchmarks.store_report import Measured
from benchmarks.store_throughput import ACTIONS, STORE, WAYS, Blobs
from benchmarks.store_upkeep import Upkeep
from pp_precompile.contract.digest import digest_bytes
from pp_precompile.store.store import open_store

SHARED, OLD, NEW, SPARE = (digest_bytes(name) for name in (b"shared", b"old", b"new", b"spare"))


def measured(folder: Path) -> Measured:
    """Return two repetitions in which the store took 1 s and 2 s, everything else 4 s."""
    seconds = {
        way: {action: [1.0, 2.0] if way == STORE else [4.0, 4.0] for action in ACTIONS}
        for way in WAYS
    }
    load = Load(64, 2**18, same=False)
    upkeep = Upkeep(
        filled=Filled(
            store=open_store(folder / "store", create=True),
            builds={
                digest_bytes(b"first"): frozenset({SHARED, OLD}),
                digest_bytes(b"second"): frozenset({SHARED, NEW}),
            },
            spare=frozenset({SPARE}),
        ),
        repository=Repository(folder / "repository", 0),
        kept_builds=1,
        blob_bytes=2**13,
        manifest_bytes=3_000_000,
    )
    for name, samples in upkeep.seconds.items():
        samples += [1.0, 2.0] if name in ("fsck", "gc") else [4.0, 4.0]
    return Measured(
        blobs=(Blobs(size=2**20, count=32, seconds=seconds),),
        crowds=((crowd(load, 1, [100.0, 200.0]), crowd(load, 8, [300.0, 200.0])),),
        upkeep=upkeep,
    )


def crowd(load: Load, processes: int, rates: list[float]) -> Crowd:
    """Return processes that did so many operations a second in each repetition."""
    return Crowd(
        load=load,
        processes=processes,
        rates={"publish": rates, "read": rates},
        slowest={"publish": [0.25, 0.75], "read": [0.25, 0.75]},
        torn=[0, 0],
        glimpses=[3, 4],
        complete=[True, True],
    )
