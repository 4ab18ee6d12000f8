"""All of torch's schedules, and one from a file, train from stored programs.

The model has the same four stages in all of them: on two ranks with two stages each, or on four.
"""

import shutil
from pathlib import Path

import pytest

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.manifest import Manifest
from tests.e2e import launch
from tests.e2e.conftest import Oracle, arguments
from tests.e2e.oracle import RELATIVE, gradients_of, largest_difference, same_gradients
from tests.e2e.planned import check_held, check_times, planned

pytestmark = pytest.mark.torchrun

STRICT = ("--compile.precompile_policy", "strict")
TIMEOUT = 900

Job = tuple[int, tuple[str, ...]]
"""Number of ranks, and arguments."""


def _named(name: str) -> tuple[str, ...]:
    return ("--parallelism.pipeline_parallel_schedule", name)


def _from_file(path: str) -> tuple[str, ...]:
    return ("--parallelism.pipeline_parallel_schedule_csv", path)


JOBS: dict[str, Job] = {
    # In this order: each finds in the store what those before it have compiled.
    "LoopedBFS": (2, _named("LoopedBFS")),
    "Interleaved1F1B": (2, _named("Interleaved1F1B")),
    "InterleavedZeroBubble": (2, _named("InterleavedZeroBubble")),
    "ZBVZeroBubble": (2, _named("ZBVZeroBubble")),
    "DualPipeV": (2, _named("DualPipeV")),
    "1F1B": (4, _named("1F1B")),
    "GPipe": (4, _named("GPipe")),
    "ZB-H1 from a file": (4, _from_file("schedules/zb_h1_4x8.csv")),
    "ZB-H1 with communication": (4, _from_file("schedules/zb_h1_4x8_comms.csv")),
}

COMPILED = {
    # dI and dW of a stage in the middle, and of the last one; the first has no dI.
    "InterleavedZeroBubble": 4,
}
"""How many programs a job adds to a store that holds those of 1F1B on four ranks."""

Runs = dict[str, launch.Result]


def _train(
    store: Path, environment: dict[str, str], folder: Path, extra: list[str]
) -> dict[str, launch.Result]:
    runs: Runs = {}
    for ranks in (2, 4):
        jobs = {n: arguments(r, store, *w, *extra) for n, (r, w) in JOBS.items() if r == ranks}
        runs |= launch.train_cases(
            jobs, environment, folder, ranks=ranks, timeout=TIMEOUT, gradients=True
        )
    return runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schedules")


@pytest.fixture(scope="module")
def store(built: Path, folder: Path) -> Path:
    """A store of its own that starts with the programs of 1F1B on four ranks."""
    return Path(shutil.copytree(built, folder / "store"))


@pytest.fixture(scope="module")
def live(store: Path, folder: Path, cache: Path, seed_checkpoint: list[str]) -> Runs:
    """Every job without a build of its own: it compiles what is missing, and trains."""
    return _train(store, launch.environment(cache), folder / "live", seed_checkpoint)


@pytest.fixture(scope="module")
def warm(store: Path, folder: Path, live: Runs, seed_checkpoint: list[str]) -> Runs:
    """Every job again, on a host with empty caches and no compiler."""
    assert live
    environment = launch.fresh_host(folder / "host") | {"RECORD_HELD": "1"}
    return _train(store, environment, folder / "warm", [*STRICT, *seed_checkpoint])


@pytest.mark.parametrize("name", JOBS)
def test_losses_and_gradients_agree_with_an_eager_process(
    name: str, warm: Runs, folder: Path, oracle: Oracle
) -> None:
    assert warm[name].losses() == pytest.approx(oracle.losses, rel=1e-6)
    gradients = gradients_of(folder / "warm" / name, JOBS[name][0])
    worst = largest_difference(gradients, oracle.gradients)
    print(f"{name}: largest relative difference of a gradient {worst:.1e}")
    assert worst < RELATIVE


@pytest.mark.parametrize("name", JOBS)
def test_loaded_programs_give_bitwise_what_they_gave_when_compiled(
    name: str, live: Runs, warm: Runs, folder: Path
) -> None:
    assert warm[name].same_numbers(live[name])
    ranks = JOBS[name][0]
    one, other = (gradients_of(folder / kind / name, ranks) for kind in ("live", "warm"))
    assert same_gradients(one, other)


@pytest.mark.parametrize("name", JOBS)
def test_another_schedule_compiles_only_what_it_does_differently(name: str, live: Runs) -> None:
    ranks = range(JOBS[name][0])
    compiled = sum(live[name].rank(rank)["ours"]["compiled"] for rank in ranks)
    assert compiled == COMPILED.get(name, 0)


def test_other_numbers_of_microbatches_compile_nothing(
    store: Path, live: Runs, cache: Path
) -> None:
    assert live
    blobs = {path.name for path in (store / "blobs").rglob("*") if path.is_file()}
    job = arguments(4, store, "--training.local_batch_size", "16", *_named("GPipe"))
    result = launch.build(job, launch.environment(cache))
    assert result.code == 0, result.output
    assert "stage 3 loss: reused" in result.output
    assert ": compiled in" not in result.output
    assert {path.name for path in (store / "blobs").rglob("*") if path.is_file()} == blobs


@pytest.mark.parametrize("name", JOBS)
def test_a_warm_start_compiles_nothing(name: str, warm: Runs) -> None:
    for rank in range(JOBS[name][0]):
        assert warm[name].rank(rank)["ours"]["compiled"] == 0
        assert warm[name].compiler_counts(rank) == {}
        assert set(warm[name].rank(rank)["commands"]).isdisjoint(launch.COMPILERS)


@pytest.mark.parametrize("name", JOBS)
def test_ranks_hold_exactly_what_the_plan_says(name: str, store: Path, warm: Runs) -> None:
    ranks, (option, value) = JOBS[name]
    csv = digest_bytes(Path(value).read_bytes()) if option.endswith("_csv") else None

    def wanted(build: Manifest) -> bool:
        schedule = build.schedule
        named = csv is not None or schedule.name == value
        sizes = (build.mesh.size("pp"), schedule.microbatches)
        return named and schedule.csv == csv and sizes == (ranks, 8)

    plan, schedule = planned(store, wanted)
    check_held(warm[name], plan)
    check_times(warm[name], schedule)


def test_schedules_with_the_same_parts_give_the_same_bits(warm: Runs, folder: Path) -> None:
    """Whole or split, a backward computes the same; microbatches add up in the same order."""
    one = gradients_of(folder / "warm" / "Interleaved1F1B", 2)
    for name in ("InterleavedZeroBubble", "ZBVZeroBubble", "1F1B", "ZB-H1 from a file"):
        other = gradients_of(folder / "warm" / name, JOBS[name][0])
        assert same_gradients(one, other), name
    assert warm
