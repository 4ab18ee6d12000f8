"""Pipelines without torchtitan: on real ranks, warm is bitwise what was compiled."""

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
from tests.pipelining.ranks import CASES, FILE, FILE_MICROBATCHES

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """What the ranks left that ran every case."""
    folder = tmp_path_factory.mktemp("pipelining")
    command = launch.torchrun("-m", "tests.pipelining.ranks", str(folder), ranks=4)
    result = launch.run(command, launch.environment(cache))
    assert result.code == 0, result.output[-6000:]
    return folder


def _reports(folder: Path, name: str) -> list[dict[str, Any]]:
    ranks = 4 if name == "replicas" else 2
    return [json.loads((folder / f"{name}_{rank}.json").read_text()) for rank in range(ranks)]


SHARED = {"gpipe", "looped", "zero_bubble", "dualpipev", "file", "keyed", "replicas"}
"""Cases whose programs another case has compiled: the same model under another schedule or mesh, or
named by a key."""


@pytest.mark.parametrize("name", [*CASES, "replicas"])
def test_loaded_stages_train_as_compiled_ones_bit_for_bit(folder: Path, name: str) -> None:
    for report in _reports(folder, name):
        auto, strict = report["auto"], report["strict"]
        assert strict["losses"] == auto["losses"]
        assert strict["gradients"] == auto["gradients"]
        assert (strict["compiled"], strict["loaded"]) == (0, auto["loaded"])
        assert strict["loaded"] > 0
    compiled = [report["auto"]["compiled"] for report in _reports(folder, name)]
    assert (sum(compiled) == 0) == (name in SHARED)


WHOLE: dict[str, tuple[Any, tuple[Any, ...], tuple[tuple[int, ...], ...]]] = {
    # the whole model, its inputs, and the trained blocks of each rank
    "pipe": (models.Model, (models.batch(), models.mask()), ((0, 1), (2, 3))),
    "pippy": (models.Plain, (models.batch(),), ((0, 1), (2, 3))),
    "gpipe": (models.Plain, (models.batch(),), ((0, 1), (2, 3))),
    "interleaved": (models.Plain, (models.batch(),), ((0, 2), (1, 3))),
    "looped": (models.Plain, (models.batch(),), ((0, 2), (1, 3))),
    "zbv": (models.Plain, (models.batch(),), ((0, 3), (1, 2))),
    "zero_bubble": (models.Plain, (models.batch(),), ((0, 2), (1, 3))),
    "dualpipev": (models.Plain, (models.batch(),), ((0, 3), (1, 2))),
    "file": (lambda: models.Plain(2), (models.batch(FILE_MICROBATCHES),), ((0,), (1,))),
    "around": (models.Around, (models.batch(),), ((0, 2), (1, 3))),
    "tuple": (models.Chain, (models.batch(), models.counts()), ((0,), (1,))),
    "frozen": (models.Frozen, (models.batch(),), ((0, 1), ())),
    "replicas": (
        models.Plain,
        (models.batch(2 * models.MICROBATCHES),),
        ((0, 2), (1, 3), (0, 2), (1, 3)),
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_they_train_as_the_whole_model_does(folder: Path, name: str) -> None:
    model, inputs, held = WHOLE[name]
    losses, gradients = models.eager(models.seeded(model), *inputs)
    reports = _reports(folder, name)
    # Of one rank, or of each replica's rank with the last stage, which has its part of the rows.
    steps = zip(*(r["auto"]["losses"] for r in reports if r["auto"]["losses"][0]), strict=True)
    found = [float.fromhex(loss) for step in steps for part in step for loss in part]
    assert found == pytest.approx(losses, rel=1e-5)
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
    "file": (
        lambda: _blocks()[:2],
        {"schedule": FILE, "args": BLOCKS["args"], "microbatches": FILE_MICROBATCHES},
    ),
    "replicas": (
        _blocks,
        {
            "schedule": "Interleaved1F1B",
            "args": BLOCKS["args"],
            "mesh": {"dp_replicate": 2, "pp": 2},
        },
    ),
    "keyed": (_blocks, {"schedule": "ZBVZeroBubble", "key": "blocks 1", **BLOCKS}),
}


@pytest.mark.parametrize("name", BUILDS)
def test_one_process_builds_what_ranks_build(folder: Path, name: str) -> None:
    """With other weights: nothing of them is in a build."""
    stages, job = BUILDS[name]
    store = folder / "store"
    before = dict(launch.files(store))
    with counters.expect(compiled=0):
        manifest = build(stages(), store=store, **{"microbatches": models.MICROBATCHES, **job})
    assert dict(launch.files(store)) == before
    assert open_store(store, create=False).builds.read(manifest.build_id) == manifest


def test_a_strict_start_without_a_build_stops_every_rank(folder: Path) -> None:
    for rank in range(2):
        text = (folder / f"refused_{rank}.txt").read_text()
        assert text.startswith("PPC101"), text
        assert "pp_precompile.pipelining.build()" in text


def test_replicas_are_part_of_what_identifies_a_build(folder: Path) -> None:
    """Another number of replicas is another build, of programs that are all there."""
    store = folder / "store"
    blocks, args = _blocks()[:2], BLOCKS["args"]
    job = {"schedule": "1F1B", "microbatches": models.MICROBATCHES, "store": store, "args": args}
    with counters.expect(compiled=0):
        alone = build(blocks, ranks=2, **job)
        one, three = (build(blocks, mesh={"dp": size, "pp": 2}, **job) for size in (1, 3))
    assert alone == one
    assert three.build_id != one.build_id
    assert three.stages == one.stages
    assert str(three.mesh) == "pp=2 x dp=3"


def test_replicas_of_other_models_stop_every_rank(folder: Path) -> None:
    for rank in range(4):
        text = (folder / f"differing_{rank}.txt").read_text()
        assert text.startswith("PPC403"), text
        assert "run the same stage, but not with the same model" in text
        assert "field programs[0].backward" in text
