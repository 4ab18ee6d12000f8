"""Stores that several tests read; each is built once a session, with one compiler cache."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import launch

LLAMA = ("--module", "pp_precompile.models.llama3", "--config", "llama3_debugmodel_sdpa")
SEED = ("--debug.seed", "42")


def arguments(degree: int, store: Path | None, *extra: str) -> list[str]:
    """Return a job's arguments; without a store, those of an uncompiled run."""
    words = [*LLAMA, *SEED, "--parallelism.pipeline_parallel_degree", str(degree)]
    if store is None:
        words += ["--compile.mode", "None", "--compile.no-enable"]
    else:
        words += ["--compile.precompile", "--compile.precompile_artifact_dir", str(store)]
    return [*words, *extra]


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


RunJob = Callable[..., launch.Result]
