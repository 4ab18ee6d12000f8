"""What stages cannot serve is refused by name, before anything is compiled."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.pipelining import build, stage, stages
from pp_precompile.pipelining.table import placed
from tests.pipelining import models

X = models.microbatch()
JOB: dict[str, Any] = {"schedule": "1F1B", "microbatches": 4}


def _list_of_modules(count: int = 2) -> nn.ModuleList:
    return models.seeded(models.Model, count).blocks


class _Early(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(models.Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = self.blocks[0](x)
        return self.blocks[1](first), first


class _Textual(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, str]:
        return x, "text"


REFUSED: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "a connection that skips a stage": (
        "PPC002",
        "stage 2 takes a value from stage 0",
        lambda store: build(models.cut(models.Skipping(), X, at=(1, 2)), **JOB, store=store),
    ),
    "a weight in two stages of a pipe": (
        "PPC002",
        "share a parameter",
        lambda store: build(models.cut(models.Tied(), X, at=(1,)), **JOB, store=store),
    ),
    "a weight in two modules": (
        "PPC002",
        "the one that stage 0 calls weight",
        lambda store: build(list(models.Tied().blocks), **JOB, store=store, args=(X,)),
    ),
    "a result of an early stage": (
        "PPC002",
        "not one of the last stage",
        lambda store: build(models.cut(_Early(), X, at=(1,)), **JOB, store=store),
    ),
    "a later stage's input by position": (
        "PPC002",
        "name it in keywords=",
        lambda store: build(
            models.cut(models.Model(), X, torch.ones_like(X), at=(2,)), **JOB, store=store
        ),
    ),
    "a keyword that there is not": (
        "PPC002",
        "keywords ['masks']",
        lambda store: build(
            models.cut(models.Plain(), X, at=(2,)), **JOB, store=store, keywords=("masks",)
        ),
    ),
    "an input that is no tensor": (
        "PPC002",
        "input scale of a stage is no tensor",
        lambda store: build(
            _list_of_modules(), **JOB, store=store, args=(X,), kwargs={"scale": 2.0}
        ),
    ),
    "a result that is no tensor": (
        "PPC002",
        "returns something that is no tensor",
        lambda store: build([_Textual(), models.Block()], **JOB, store=store, args=(X,)),
    ),
    "modules that do not fit each other": (
        "PPC301",
        "does not run on what it is given",
        lambda store: build([models.Block(), nn.Linear(3, 3)], **JOB, store=store, args=(X,)),
    ),
    "a first stage with nothing to train": (
        "PPC301",
        "nothing in the stage requires a gradient",
        lambda store: build(list(models.Frozen(0).blocks), **JOB, store=store, args=(X,)),
    ),
    "modules without an example": (
        "PPC002",
        "nothing says what the first stage is called with",
        lambda store: build(_list_of_modules(), **JOB, store=store),
    ),
    "a schedule that there is not": (
        "PPC003",
        "torch has no schedule 2F2B",
        lambda store: build(
            _list_of_modules(), schedule="2F2B", microbatches=4, store=store, args=(X,)
        ),
    ),
    "two stages a rank under 1F1B": (
        "PPC003",
        "has one stage on each rank",
        lambda store: build(_list_of_modules(4), **JOB, store=store, args=(X,), ranks=2),
    ),
    "a schedule file for others": (
        "PPC003",
        "is for another job",
        lambda store: build(
            _list_of_modules(),
            schedule="schedules/1f1b_4x8.csv",
            microbatches=4,
            store=store,
            args=(X,),
        ),
    ),
    "a schedule file that there is not": (
        "PPC003",
        "cannot be read",
        lambda store: build(
            _list_of_modules(), schedule="none.csv", microbatches=4, store=store, args=(X,)
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str, tmp_path: Path) -> None:
    code, text, call = REFUSED[name]
    with pytest.raises(PrecompileError) as raised:
        call(tmp_path / "store")
    assert raised.value.code == code
    assert text in str(raised.value)
    assert not (tmp_path / "store").exists()
    assert not dist.is_initialized()


@pytest.mark.parametrize(("name", "ranks", "count"), [("1F1B", 2, 3), ("ZBVZeroBubble", 2, 2)])
def test_stages_that_cannot_be_dealt_out(name: str, ranks: int, count: int) -> None:
    with pytest.raises(PrecompileError, match="PPC003"):
        placed(name, ranks, count)


def test_stages_lie_as_schedules_need_them() -> None:
    assert placed("Interleaved1F1B", 2, 4) == ((0, 2), (1, 3))
    assert placed("DualPipeV", 2, 4) == ((0, 3), (1, 2))


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A job of this process alone, with the key-value store that ranks agree through."""
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


STARTS: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "modules without a number of stages": (
        "PPC002",
        "num_stages=",
        lambda store: stage(models.Block(), 0, **JOB, store=store, args=(X,)),
    ),
    "modules without examples": (
        "PPC002",
        "what stages [0] are called with",
        lambda store: stage(models.Block(), 0, **JOB, store=store, num_stages=1),
    ),
    "another rank's module": (
        "PPC003",
        "gives this rank other stages",
        lambda store: stages({1: models.Block()}, **JOB, store=store, num_stages=1, args={1: (X,)}),
    ),
    "a strict job without a build": (
        "PPC101",
        "pp_precompile.pipelining.build()",
        lambda store: stage(
            models.Block(), 0, **JOB, store=store, num_stages=1, args=(X,), policy="strict"
        ),
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_starts_refused_by_name(name: str, tmp_path: Path, one_rank: None) -> None:
    code, text, call = STARTS[name]
    with pytest.raises(PrecompileError) as raised:
        call(tmp_path / "store")
    assert raised.value.code == code
    assert text in str(raised.value)
