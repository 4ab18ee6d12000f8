"""What the tests of several nodes share: a job, its store, and how it runs on one node."""

from pathlib import Path

import pytest

from tests.e2e import launch
from tests.e2e.conftest import few_layers_arguments

STRICT = ("--compile.precompile_policy", "strict")


def job(store: Path, *extra: str) -> list[str]:
    """Return the arguments of the job that all these tests run: two stages, each on two ranks."""
    sharded = ("--parallelism.data_parallel_shard_degree", "2", "--training.steps", "3")
    return few_layers_arguments(2, store, *sharded, *extra)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the build of the job, made without a cluster."""
    folder = tmp_path_factory.mktemp("multinode")
    result = launch.build(job(folder / "store"), launch.environment(folder / "cache"))
    assert result.code == 0, result.output
    return folder / "store"


@pytest.fixture(scope="session")
def one_node(store: Path, tmp_path_factory: pytest.TempPathFactory) -> launch.Result:
    """The job on one node, from the same store."""
    folder = tmp_path_factory.mktemp("one_node")
    environment = launch.environment(folder / "cache")
    result = launch.train(job(store, *STRICT), environment, folder / "run", ranks=4)
    assert result.code == 0, result.output
    return result
