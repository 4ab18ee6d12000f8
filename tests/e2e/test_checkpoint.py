"""torchtitan's checkpoints do not know whether stages came from a store.

Runs with and without stored stages go on from each other's checkpoints, and export the same model.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader

from tests.e2e import launch
from tests.e2e.conftest import few_layers_arguments as arguments

pytestmark = pytest.mark.torchrun

SAVE = (
    *("--checkpoint.enable", "--checkpoint.interval", "1"),
    "--checkpoint.no-last-save-model-only",
)
LEARNING_RATE = 8e-4
"""Of the debug model. A step of AdamW moves a weight by at most that, into one or the other
direction where its gradient is nearly zero."""

EXPORT = (
    *("--training.steps", "1", "--checkpoint.enable", "--checkpoint.interval", "1000"),
    *("--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf"),
)

Runs = dict[str, launch.Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def runs(folder: Path, cache: Path) -> Runs:
    """Runs of two steps that save after each, runs that go on after the first, and exports."""
    ways = {"ours": folder / "store", "eager": None}
    jobs = {way: arguments(2, store, *SAVE) for way, store in ways.items()}
    for way, store in ways.items():
        for before in ways:
            saved = folder / before / "dump" / "checkpoint" / "step-1"
            load = ("--checkpoint.initial-load-path", str(saved))
            words = (*SAVE, *load, "--checkpoint.no-initial-load-model-only")
            jobs[f"{way} after {before}"] = arguments(2, store, *words)
        jobs[f"{way}, exported"] = arguments(2, store, *EXPORT)
    return launch.train_cases(jobs, launch.environment(cache), folder, ranks=2)


@pytest.mark.parametrize("way", ["ours", "eager"])
@pytest.mark.parametrize("before", ["ours", "eager"])
def test_a_run_goes_on_from_a_checkpoint(way: str, before: str, runs: Runs) -> None:
    uninterrupted, resumed = runs[before].losses(), runs[f"{way} after {before}"].losses()
    assert len(resumed) == 1
    assert resumed == pytest.approx(uninterrupted[1:], rel=1e-6)


def test_going_on_is_bitwise_like_never_having_stopped(runs: Runs) -> None:
    assert runs["ours after ours"].losses() == runs["ours"].losses()[1:]


def test_checkpoints_hold_the_same_names(runs: Runs, folder: Path) -> None:
    assert runs
    ours, eager = (
        FileSystemReader(folder / way / "dump" / "checkpoint" / "step-1")
        .read_metadata()
        .state_dict_metadata
        for way in ("ours", "eager")
    )
    assert any("layers.1" in name for name in ours)
    assert ours.keys() == eager.keys()


def test_the_exported_model_is_the_same(runs: Runs, folder: Path) -> None:
    assert runs
    ours, eager = (_exported(folder / f"{way}, exported" / "dump") for way in ("ours", "eager"))
    assert "model.layers.1.mlp.down_proj.weight" in ours
    assert ours.keys() == eager.keys()
    for name, weight in ours.items():
        assert (weight - eager[name]).abs().max() <= 2 * LEARNING_RATE


def _exported(dump: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the only export below ``dump``."""
    files = sorted((dump / "checkpoint" / "step-1").glob("*.safetensors"))
    assert files
    return {name: value for file in files for name, value in load_file(file).items()}
