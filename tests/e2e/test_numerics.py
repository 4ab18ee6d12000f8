"""Stored programs compute what the eager model computes, for the same weights."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e import launch
from tests.e2e.conftest import arguments

pytestmark = pytest.mark.torchrun

RELATIVE = 5e-6
"""Largest difference allowed between a gradient and the reference's, relative to the largest entry
of that gradient. float32 rounds at 6e-8; fused kernels sum over 2,048 tokens and 6 layers in
another order than eager ones. Measured: 1.6e-6 without a pipeline (one batch of 8 sequences), 4e-7
with one (8 microbatches of 1, added up)."""


def _gradients(folder: Path, ranks: int) -> dict[str, torch.Tensor]:
    saved: list[dict[str, Any]] = [torch.load(folder / f"rank_{r}.pt") for r in range(ranks)]
    return {name: value for part in saved for name, value in part["gradients"].items()}


@pytest.fixture(scope="module")
def seed_checkpoint(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments that start from one set of weights, whatever the parallelism."""
    folder = tmp_path_factory.mktemp("seed")
    make = ("--checkpoint.enable", "--checkpoint.create_seed_checkpoint")
    result = launch.train(
        arguments(1, None, *make), launch.environment(cache), folder / "run", ranks=1
    )
    assert result.code == 0, result.output
    path = folder / "run" / "dump" / "checkpoint" / "step-0"
    assert path.is_dir()
    return [
        *("--checkpoint.enable", "--checkpoint.initial_load_path", str(path)),
        *("--checkpoint.no-initial_load_model_only", "--checkpoint.interval", "1000"),
    ]


@pytest.fixture(scope="module")
def reference(
    cache: Path, seed_checkpoint: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[launch.Result, dict[str, torch.Tensor]]:
    """The whole model, eager, in a single process."""
    folder = tmp_path_factory.mktemp("reference")
    job = arguments(1, None, *seed_checkpoint)
    result = launch.train(job, launch.environment(cache), folder, ranks=1, gradients=True)
    assert result.code == 0, result.output
    return result, _gradients(folder, 1)


@pytest.mark.parametrize(
    ("degree", "extra"),
    [
        (1, ()),
        (4, ()),
        (2, ("--parallelism.pipeline_parallel_schedule", "Interleaved1F1B")),
    ],
)
def test_losses_and_gradients_agree_with_a_single_eager_process(
    degree: int,
    extra: tuple[str, ...],
    built: Path,
    cache: Path,
    seed_checkpoint: list[str],
    reference: tuple[launch.Result, dict[str, torch.Tensor]],
    tmp_path: Path,
) -> None:
    store = Path(shutil.copytree(built, tmp_path / "store"))
    job = arguments(degree, store, *extra, *seed_checkpoint)
    environment = launch.environment(cache)
    result = launch.train(job, environment, tmp_path, ranks=degree, gradients=True)
    assert result.code == 0, result.output
    assert all(result.rank(rank)["ours"]["loaded"] >= 2 for rank in range(degree))
    expected = reference[0].losses()
    assert result.losses() == pytest.approx(expected, rel=1e-6)
    gradients, wanted = _gradients(tmp_path, degree), reference[1]
    assert gradients.keys() == wanted.keys()
    worst = max(
        ((gradients[n] - wanted[n]).abs().max() / wanted[n].abs().max()).item() for n in wanted
    )
    print(f"largest relative difference of a gradient: {worst:.1e}")
    assert worst < RELATIVE
