"""Which stored build comes nearest to a job, and in what it differs."""

from collections.abc import Iterable, Mapping

import msgspec

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.key import differing
from pp_precompile.contract.manifest import Manifest


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One factor by name, with the values of both sides; None where one has no such factor."""

    factor: str
    stored: str | None
    asked: str | None


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """A stored build and every factor in which it differs."""

    build: Digest
    differs: tuple[Difference, ...]


def differences(stored: Mapping[str, str], asked: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return every factor that differs, in the order of the names."""
    return tuple(
        Difference(factor=name, stored=one, asked=other)
        for name, (one, other) in differing(stored, asked).items()
    )


def nearest(factors: Mapping[str, str], builds: Iterable[Manifest]) -> Nearest | None:
    """Return the build that differs in the fewest factors; None if there is none at all."""
    candidates = [
        Nearest(build=build.build_id, differs=differences(build.factors, factors))
        for build in builds
    ]
    return min(candidates, key=lambda near: (len(near.differs), near.build), default=None)
