"""Shared fixtures: fixed seeds for hypothesis, manifests, stores; which tests run side by side."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pp_precompile.contract.manifest import Manifest
from pp_precompile.store.store import Store, open_store
from tests import manifests

# The same examples in every run and on every machine; no deadline, since CI hosts stall at will.
settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fixed")

JOBS = {"e2e", "faults", "multinode"}
"""Folders whose tests start the ranks of jobs, which take all cores of a small machine."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Keep jobs in one process of pytest-xdist, one after the other.

    The other processes take the other files, each whole: what a file's tests share is made once.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            if file.parent.name == "pipelining":
                return file.parent.name  # its jobs are of two ranks, one after the other
            return "jobs" if file.parent.name in JOBS else str(file)

    return ByFile(config, log)


@pytest.fixture
def make_manifest() -> Callable[..., Manifest]:
    """:func:`tests.manifests.make_manifest`, for tests that would rather not import it."""
    return manifests.make_manifest


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return open_store(tmp_path / "store", create=True)
