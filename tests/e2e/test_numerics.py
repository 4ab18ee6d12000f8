"""Stored programs compute what the eager model computes, for the same weights.

Schedules are in ``test_schedules``; this is the pipeline of one stage.
"""

from pathlib import Path

import pytest

from tests.e2e import launch
from tests.e2e.conftest import Oracle, arguments
from tests.e2e.oracle import RELATIVE, gradients_of, largest_difference

pytestmark = pytest.mark.torchrun


def test_losses_and_gradients_agree_with_an_eager_process(
    cache: Path, seed_checkpoint: list[str], oracle: Oracle, tmp_path: Path
) -> None:
    job = arguments(1, tmp_path / "store", *seed_checkpoint)
    result = launch.train(job, launch.environment(cache), tmp_path, ranks=1, gradients=True)
    assert result.code == 0, result.output
    assert result.rank(0)["ours"]["loaded"] == 3
    assert result.losses() == pytest.approx(oracle.losses, rel=1e-6)
    worst = largest_difference(gradients_of(tmp_path, 1), oracle.gradients)
    print(f"largest relative difference of a gradient: {worst:.1e}")
    assert worst < RELATIVE
