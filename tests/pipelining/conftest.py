"""What the tests of pipelines share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the compiler of all launches: each would compile torch's headers first."""
    return tmp_path_factory.mktemp("compiler")
