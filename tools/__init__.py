"""Checks that run beside the linters; no part of the package."""
