"""Warm starts for pipeline-parallel training: compile each stage once, load it anywhere.

Importing this package imports neither torch nor torchtitan; see ``pp_precompile.cli`` for the
commands and ``pp_precompile.train`` for training.
"""

__version__ = "0.1.0"
