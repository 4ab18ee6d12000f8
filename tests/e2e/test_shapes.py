"""Jobs of other shapes: accumulated gradients, validation, larger microbatches, uneven stages.

All are compared with the same job in one eager process, from the same weights.
"""

from pathlib import Path

import pytest

from tests.e2e import launch
from tests.e2e.conftest import SEED, arguments
from tests.e2e.oracle import (
    RELATIVE,
    gradients_of,
    largest_difference,
    same_gradients,
    validation_losses,
)

pytestmark = pytest.mark.torchrun

STRICT = ("--compile.precompile_policy", "strict")
ACCUMULATE = ("--training.global_batch_size", "16")
VALIDATE = ("--validator.enable", "--validator.freq", "1", "--validator.steps", "2")

SCHEDULE = "--parallelism.pipeline_parallel_schedule"
UNEVEN = ("--module", "tests.e2e.configs", "--config", "llama3_uneven_stages")

JOBS: dict[str, tuple[str, ...]] = {
    "accumulation, validation, microbatches of 2": (
        *(SCHEDULE, "ZBVZeroBubble", "--parallelism.pipeline_parallel_microbatch_size", "2"),
        *(*ACCUMULATE, *VALIDATE),
    ),
    "a layer a stage, embedding and head alone": (
        *(SCHEDULE, "Interleaved1F1B", "--parallelism.pipeline_parallel_layers_per_stage", "1"),
    ),
    "uneven stages by name": (*UNEVEN, *SEED, SCHEDULE, "InterleavedZeroBubble"),
}
ALONE: dict[str, tuple[str, ...]] = {
    "accumulation, validation, microbatches of 2": (*ACCUMULATE, *VALIDATE),
}
"""What one process needs to do the same; nothing for jobs that are not listed."""

TIMEOUT = 900


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


Runs = dict[str, launch.Result]


@pytest.fixture(scope="module")
def alone(folder: Path, cache: Path, seed_checkpoint: list[str]) -> Runs:
    """Each job in one eager process."""
    jobs = {name: arguments(1, None, *ALONE.get(name, ()), *seed_checkpoint) for name in JOBS}
    return _train(jobs, launch.environment(cache), folder / "alone", ranks=1)


@pytest.fixture(scope="module")
def live(folder: Path, cache: Path, seed_checkpoint: list[str]) -> Runs:
    """Each job on two ranks, compiling what it needs."""
    jobs = {n: arguments(2, folder / "store", *w, *seed_checkpoint) for n, w in JOBS.items()}
    return _train(jobs, launch.environment(cache), folder / "live", ranks=2)


@pytest.fixture(scope="module")
def warm(folder: Path, live: Runs, seed_checkpoint: list[str]) -> Runs:
    """Each job again, on a host with empty caches and no compiler."""
    assert live
    extra = (*STRICT, *seed_checkpoint)
    jobs = {n: arguments(2, folder / "store", *w, *extra) for n, w in JOBS.items()}
    return _train(jobs, launch.fresh_host(folder / "host"), folder / "warm", ranks=2)


def _train(
    jobs: dict[str, list[str]], environment: dict[str, str], folder: Path, ranks: int
) -> Runs:
    return launch.train_cases(
        jobs, environment, folder, ranks=ranks, timeout=TIMEOUT, gradients=True
    )


@pytest.mark.parametrize("name", JOBS)
def test_losses_and_gradients_agree_with_an_eager_process(
    name: str, alone: Runs, warm: Runs, folder: Path
) -> None:
    assert warm[name].losses() == pytest.approx(alone[name].losses(), rel=1e-6)
    one, other = gradients_of(folder / "warm" / name, 2), gradients_of(folder / "alone" / name, 1)
    worst = largest_difference(one, other)
    print(f"{name}: largest relative difference of a gradient {worst:.1e}")
    assert worst < RELATIVE


@pytest.mark.parametrize("name", JOBS)
def test_a_warm_start_compiles_nothing_and_gives_the_same_bits(
    name: str, live: Runs, warm: Runs, folder: Path
) -> None:
    assert warm[name].same_numbers(live[name])
    one, other = (gradients_of(folder / kind / name, 2) for kind in ("live", "warm"))
    assert same_gradients(one, other)
    assert all(warm[name].rank(rank)["ours"]["compiled"] == 0 for rank in range(2))
    assert all(warm[name].compiler_counts(rank) == {} for rank in range(2))


def test_validation_between_steps_agrees_with_an_eager_process(alone: Runs, warm: Runs) -> None:
    name = "accumulation, validation, microbatches of 2"
    found, expected = validation_losses(warm[name]), validation_losses(alone[name])
    assert len(found) == 3
    assert found == pytest.approx(expected, rel=1e-4)  # logged with five digits
