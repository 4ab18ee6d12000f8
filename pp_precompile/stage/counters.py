"""Counts of what this process did, so that a run can prove that it compiled nothing."""

import contextlib
import dataclasses
from collections.abc import Iterator


@dataclasses.dataclass
class Counters:
    """Work done so far in this process.

    ``compiled`` counts programs compiled, ``reused`` programs taken from the store while building,
    ``loaded`` programs made callable, ``bytes_loaded`` the bytes of their blobs.
    """

    compiled: int = 0
    reused: int = 0
    loaded: int = 0
    bytes_loaded: int = 0

    @contextlib.contextmanager
    def expect(self, **changes: int) -> Iterator[None]:
        """Assert that the block changes the named counters by exactly these amounts.

        Raises:
            AssertionError: naming every counter that changed otherwise.
        """
        before = dataclasses.asdict(self)
        yield
        after = dataclasses.asdict(self)
        wrong = {
            name: f"expected +{change}, found +{after[name] - before[name]}"
            for name, change in changes.items()
            if after[name] - before[name] != change
        }
        if wrong:
            raise AssertionError(f"counters: {wrong}")


counters = Counters()
"""The counters of this process."""
