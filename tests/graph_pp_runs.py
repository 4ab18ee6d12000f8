"""Tests of torchtitan's GraphPP run where it does."""

import pytest
import torch

from pp_precompile.titan import private_graph_pp

RUNS = ".".join(torch.__version__.split(".")[:2]) in private_graph_pp.TORCH

needs_graph_pp = pytest.mark.skipif(
    not RUNS, reason=f"torchtitan's GraphPP does not run on torch {torch.__version__}: refused"
)
