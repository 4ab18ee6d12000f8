"""Stores that several tests read; each is built once a session, with one compiler cache."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import launch
from tests.e2e.oracle import Gradients, gradients_of

LLAMA = ("--module", "pp_precompile.models.llama3", "--config", "llama3_debugmodel_sdpa")
FEW_LAYERS = ("--module", "tests.e2e.configs", "--config", "llama3_few_layers")
SEED = ("--debug.seed", "42")


def arguments(
    degree: int, store: Path | None, *extra: str, model: tuple[str, ...] = LLAMA
) -> list[str]:
    """Return a job's arguments; without a store, those of an uncompiled run."""
    words = [*model, *SEED, "--parallelism.pipeline_parallel_degree", str(degree)]
    if store is None:
        words += ["--compile.mode", "None", "--compile.no-enable"]
    else:
        words += ["--compile.precompile", "--compile.precompile_artifact_dir", str(store)]
    return [*words, *extra]


def few_layers_arguments(degree: int, store: Path | None, *extra: str) -> list[str]:
    """Return the arguments of a job of the model of few layers."""
    return arguments(degree, store, *extra, model=FEW_LAYERS)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiler cache that starts empty and is shared by the session's builds."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture(scope="session")
def built(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the PP4 job, built without a cluster."""
    store = tmp_path_factory.mktemp("built") / "store"
    result = launch.build(arguments(4, store), launch.environment(cache))
    assert result.code == 0, result.output
    (store.parent / "output.txt").write_text(result.output)
    return store


@pytest.fixture(scope="session")
def trained(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[launch.Result, Path]:
    """The PP4 job trained without a build: what its ranks recorded, and the store it filled."""
    folder = tmp_path_factory.mktemp("trained")
    environment = launch.environment(cache)
    result = launch.train(arguments(4, folder / "store"), environment, folder / "run", ranks=4)
    assert result.code == 0, result.output
    return result, folder / "store"


@pytest.fixture
def fresh_host(tmp_path: Path) -> dict[str, str]:
    """The environment of a host with empty caches and no compiler."""
    return launch.fresh_host(tmp_path / "host")


@pytest.fixture(scope="session")
def seed_checkpoint(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments that start from one set of weights, whatever the parallelism."""
    return _seed_checkpoint(LLAMA, cache, tmp_path_factory.mktemp("seed"))


@pytest.fixture(scope="session")
def few_layers_seed(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same for the model of few layers."""
    return _seed_checkpoint(FEW_LAYERS, cache, tmp_path_factory.mktemp("few_layers_seed"))


def _seed_checkpoint(model: tuple[str, ...], cache: Path, folder: Path) -> list[str]:
    make = ("--checkpoint.enable", "--checkpoint.create_seed_checkpoint")
    result = launch.train(
        arguments(1, None, *make, model=model), launch.environment(cache), folder / "run", ranks=1
    )
    assert result.code == 0, result.output
    path = folder / "run" / "dump" / "checkpoint" / "step-0"
    assert path.is_dir()
    return [
        *("--checkpoint.enable", "--checkpoint.initial_load_path", str(path)),
        *("--checkpoint.interval", "1000"),
    ]


@dataclass(frozen=True)
class Oracle:
    """Losses of every step, and gradients of the first, of the whole model in one process."""

    losses: list[float]
    gradients: Gradients


@pytest.fixture(scope="session")
def oracle(
    cache: Path, seed_checkpoint: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Oracle:
    """The whole model, eager, in a single process."""
    return _oracle(LLAMA, seed_checkpoint, cache, tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="session")
def few_layers_oracle(
    cache: Path, few_layers_seed: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Oracle:
    """The same for the model of few layers."""
    return _oracle(FEW_LAYERS, few_layers_seed, cache, tmp_path_factory.mktemp("few_layers_oracle"))


def _oracle(model: tuple[str, ...], seed: list[str], cache: Path, folder: Path) -> Oracle:
    job = arguments(1, None, *seed, model=model)
    result = launch.train(job, launch.environment(cache), folder, ranks=1, gradients=True)
    assert result.code == 0, result.output
    return Oracle(losses=result.losses(), gradients=gradients_of(folder, 1))
