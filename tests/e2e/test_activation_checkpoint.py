"""Jobs that compute activations again instead of saving them.

Gradients are compared with those of one eager process from the same weights.
"""

from pathlib import Path

import pytest

from tests.e2e import launch
from tests.e2e.conftest import Oracle
from tests.e2e.conftest import few_layers_arguments as arguments
from tests.e2e.oracle import RELATIVE, gradients_of, largest_difference, same_gradients

pytestmark = pytest.mark.torchrun

STRICT = ("--compile.precompile_policy", "strict")
SPLIT = ("--parallelism.pipeline_parallel_schedule", "ZBVZeroBubble")

Words = tuple[str, ...]

JOBS: dict[str, tuple[Words, Words]] = {
    "selective, split backward": (SPLIT, ("activation-checkpoint:selective",)),
    "every second product": (("--compile.memory_policy", "eager"), ()),
    "full": ((), ("activation-checkpoint:full",)),
    "budget": (
        (),
        ("activation-checkpoint:memory-budget", "--activation-checkpoint.memory-budget", "0.3"),
    ),
}
"""Arguments of each job on two ranks, and its subcommand, which stands behind all of them."""

TIMEOUT = 900

Runs = dict[str, launch.Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("activations")


@pytest.fixture(scope="module")
def live(folder: Path, cache: Path, few_layers_seed: list[str]) -> Runs:
    """Each job compiling what it needs."""
    return _train(folder, "live", launch.environment(cache), tuple(few_layers_seed))


@pytest.fixture(scope="module")
def warm(folder: Path, live: Runs, few_layers_seed: list[str]) -> Runs:
    """Each job again, on a host with empty caches and no compiler."""
    assert live
    host = launch.fresh_host(folder / "host")
    return _train(folder, "warm", host, (*STRICT, *few_layers_seed))


def _train(folder: Path, kind: str, environment: dict[str, str], extra: Words) -> Runs:
    jobs = {
        name: [*arguments(2, folder / "store", *words, *extra), *command]
        for name, (words, command) in JOBS.items()
    }
    return launch.train_cases(
        jobs, environment, folder / kind, ranks=2, timeout=TIMEOUT, gradients=True
    )


@pytest.mark.parametrize("name", JOBS)
def test_losses_and_gradients_agree_with_an_eager_process(
    name: str, warm: Runs, few_layers_oracle: Oracle, folder: Path
) -> None:
    losses = warm[name].losses()
    assert losses == pytest.approx(few_layers_oracle.losses[: len(losses)], rel=1e-6)
    worst = largest_difference(gradients_of(folder / "warm" / name, 2), few_layers_oracle.gradients)
    print(f"{name}: largest relative difference of a gradient {worst:.1e}")
    assert worst < RELATIVE


@pytest.mark.parametrize("name", JOBS)
def test_a_warm_start_compiles_nothing_and_gives_the_same_bits(
    name: str, live: Runs, warm: Runs, folder: Path
) -> None:
    assert warm[name].same_numbers(live[name])
    one, other = (gradients_of(folder / kind / name, 2) for kind in ("live", "warm"))
    assert same_gradients(one, other)
    assert all(live[name].rank(rank)["ours"]["compiled"] > 0 for rank in range(2))
    assert all(warm[name].rank(rank)["ours"]["compiled"] == 0 for rank in range(2))
    assert all(warm[name].compiler_counts(rank) == {} for rank in range(2))
