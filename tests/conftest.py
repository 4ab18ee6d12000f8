"""Shared fixtures: fixed seeds for hypothesis, manifests to check, stores to fill."""

from collections.abc import Callable
from pathlib import Path

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


@pytest.fixture
def make_manifest() -> Callable[..., Manifest]:
    """:func:`tests.manifests.make_manifest`, for tests that would rather not import it."""
    return manifests.make_manifest


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return open_store(tmp_path / "store", create=True)
