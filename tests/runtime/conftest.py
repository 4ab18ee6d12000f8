"""Tests here compile."""

from tests.compiler import own_compiler_cache as own_compiler_cache
