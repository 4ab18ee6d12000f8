"""Pipelines without torchtitan: on two real ranks, warm is bitwise what was compiled."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.pipelining import Pipe

from pp_precompile.pipelining import build
from pp_precompile.stage.counters import counters
from pp_precompile.store.store import open_store
from tests.e2e import launch
from tests.pipelining import models
from tests.pipelining.ranks import CASES

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks left that ran every case."""
    folder = tmp_path_factory.mktemp("pipelining")
    command = launch.torchrun("-m", "tests.pipelining.ranks", str(folder), ranks=2)
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


WHOLE: dict[str, tuple[Any, tuple[Any, ...], tuple[tuple[int, ...], ...]]] = {
    # the whole model, its inputs, and the trained blocks of each rank
    "pipe": (models.Model, (models.batch(), models.mask()), ((0, 1), (2, 3))),
    "pippy": (models.Plain, (models.batch(),), ((0, 1), (2, 3))),
    "interleaved": (models.Plain, (models.batch(),), ((0, 2), (1, 3))),
    "zbv": (models.Plain, (models.batch(),), ((0, 3), (1, 2))),
    "tuple": (models.Chain, (models.batch(), models.counts()), ((0,), (1,))),
    "frozen": (models.Frozen, (models.batch(),), ((0, 1), ())),
}


@pytest.mark.parametrize("name", WHOLE)
def test_they_train_as_the_whole_model_does(folder: Path, name: str) -> None:
    model, inputs, held = WHOLE[name]
    losses, gradients = models.eager(models.seeded(model), *inputs)
    reports = _reports(folder, name)
    found = next(r["auto"]["losses"] for r in reports if r["auto"]["losses"][0])
    assert [float.fromhex(v) for step in found for v in step] == pytest.approx(losses, rel=1e-5)
    for report, blocks in zip(reports, held, strict=True):
        wanted = [gradients[4 * block + p] for block in blocks for p in range(4)]
        for one, gradient in zip(report["auto"]["gradients"], wanted, strict=True):
            ours = torch.tensor([float.fromhex(v) for v in one]).view_as(gradient)
            # float32 sums in another order, over 4 microbatches.
            torch.testing.assert_close(ours, gradient, rtol=1e-5, atol=1e-6)


def _pipe() -> Pipe:
    inputs = models.microbatch(), torch.ones(models.ROWS, models.WIDTH)
    return models.cut(models.Model(), *inputs, at=(2,))


def _blocks() -> Any:
    return models.Model().blocks


BLOCKS: dict[str, Any] = {"args": (models.microbatch(),), "ranks": 2}
BUILDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "pipe": (_pipe, {"schedule": "1F1B", "keywords": ("mask",)}),
    "interleaved": (_blocks, {"schedule": "Interleaved1F1B", **BLOCKS}),
    "zbv": (_blocks, {"schedule": "ZBVZeroBubble", **BLOCKS}),
    "keyed": (_blocks, {"schedule": "ZBVZeroBubble", "key": "blocks 1", **BLOCKS}),
}


@pytest.mark.parametrize("name", BUILDS)
def test_one_process_builds_what_ranks_build(folder: Path, name: str) -> None:
    """With other weights: nothing of them is in a build."""
    stages, job = BUILDS[name]
    store = folder / "store"
    before = dict(launch.files(store))
    with counters.expect(compiled=0):
        manifest = build(stages(), microbatches=models.MICROBATCHES, store=store, **job)
    assert dict(launch.files(store)) == before
    assert open_store(store, create=False).builds.read(manifest.build_id) == manifest


def test_a_strict_start_without_a_build_stops_every_rank(folder: Path) -> None:
    for rank in range(2):
        text = (folder / f"refused_{rank}.txt").read_text()
        assert text.startswith("PPC101"), text
        assert "pp_precompile.pipelining.build()" in text
