"""The fixtures of the end-to-end tests: one compiler cache for the session."""

from tests.e2e.conftest import cache

__all__ = ["cache"]
