"""A compiler cache of the tests' own, which starts empty."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_compiler_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point Inductor at an empty folder while tests in this process compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield
