"""Pipelines without torchtitan: on two real ranks, warm is bitwise what was compiled."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e import launch
from tests.pipelining import models
from tests.pipelining.ranks import CASES

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks left that ran every case."""
    folder = tmp_path_factory.mktemp("pipelining")
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-port", str(launch.free_port()), "-m", "tests.pipelining.ranks", str(folder)),
    ]
    result = launch.run(command, launch.environment(folder / "cache"))
    assert result.code == 0, result.output[-6000:]
    return folder


def _reports(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{name}_{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_loaded_stages_train_as_compiled_ones_bit_for_bit(folder: Path, name: str) -> None:
    for report in _reports(folder, name):
        auto, strict = report["auto"], report["strict"]
        assert strict["losses"] == auto["losses"]
        assert strict["gradients"] == auto["gradients"]
        assert (strict["compiled"], strict["loaded"]) == (0, auto["loaded"])
        assert strict["loaded"] > 0
    compiled = [report["auto"]["compiled"] for report in _reports(folder, name)]
    # The same model under another schedule, or named by a key, has its programs already.
    assert sum(compiled) > 0 or name == "keyed"


@pytest.mark.parametrize("name", ["pipe", "interleaved", "zbv"])
def test_they_train_as_the_whole_model_does(folder: Path, name: str) -> None:
    inputs = (models.batch(), models.mask()) if name == "pipe" else (models.batch(),)
    model = models.seeded(models.Model)
    if name != "pipe":
        model.forward = torch.nn.Sequential(*model.blocks).forward
    losses, gradients = models.eager(model, *inputs)
    reports = _reports(folder, name)
    found = next(r["auto"]["losses"] for r in reports if r["auto"]["losses"][0])
    assert [float.fromhex(v) for step in found for v in step] == pytest.approx(losses, rel=1e-5)
    stages = {"pipe": ((0, 1), (2, 3)), "interleaved": ((0, 2), (1, 3)), "zbv": ((0, 3), (1, 2))}
    for report, held in zip(reports, stages[name], strict=True):
        wanted = [gradients[4 * block + p] for block in held for p in range(4)]
        for one, gradient in zip(report["auto"]["gradients"], wanted, strict=True):
            ours = torch.tensor([float.fromhex(v) for v in one]).view_as(gradient)
            torch.testing.assert_close(ours, gradient, rtol=1e-5, atol=1e-7)


def test_a_strict_start_without_a_build_stops_every_rank(folder: Path) -> None:
    for rank in range(2):
        text = (folder / f"refused_{rank}.txt").read_text()
        assert text.startswith("PPC101"), text
        assert "pp_precompile.pipelining.build()" in text
