"""The CPU platform must be in place before any test imports torchtitan."""

from pp_precompile.titan import cpu_platform

cpu_platform.enable()
