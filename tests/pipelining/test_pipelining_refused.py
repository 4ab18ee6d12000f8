"""What stages cannot serve is refused by name, before anything is compiled."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import Pipe, PipelineStage, SplitPoint, pipeline
from torch.distributed.tensor import DTensor, distribute_module
from torch.utils.checkpoint import checkpoint

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.pipelining import build, file_schedule, of_modules, of_pipe, stage, stages
from pp_precompile.pipelining.job import PipelineJob
from pp_precompile.pipelining.mesh import mesh_spec
from pp_precompile.pipelining.part import Part
from pp_precompile.pipelining.table import placed
from tests.pipelining import models
from tests.schedules import FOLDER, one_f_one_b

X = models.microbatch()
CPU = torch.device("cpu")
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


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(models.Block() for _ in range(2))

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return self.blocks[1](self.blocks[0](x)) * scale


def _scaled(scale: float) -> Pipe:
    spec = {"blocks.1": SplitPoint.BEGINNING}
    return pipeline(_Scaled(), mb_args=(X,), mb_kwargs={"scale": scale}, split_spec=spec)


def _hooked() -> nn.Module:
    block = models.Block()
    block.up.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return block


def _divided() -> nn.Module:
    block = models.Block()
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    return distribute_module(block, mesh)


class _Comparing(models.End):
    def forward(self, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return self.block(x) * (first > 0)


class _Averaging(models.Two):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.block(x)
        return x, x.mean()


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
    "a number, which a pipe has as a constant, as a keyword": (
        "PPC002",
        "keywords ['scale']",
        lambda store: build(_scaled(2.0), **JOB, store=store, keywords=("scale",)),
    ),
    "a hook on a gradient": (
        "PPC002",
        "up.weight has a hook on its gradient",
        lambda store: build([models.Block(), _hooked()], **JOB, store=store, args=(X,)),
    ),
    "a mesh without a pipeline": (
        "PPC002",
        "which of its dimensions is the pipeline",
        lambda store: build(
            _list_of_modules(), **JOB, store=store, args=(X,), mesh={"dp_replicate": 2}
        ),
    ),
    "a mesh that divides stages": (
        "PPC002",
        "a dimension tp, along which a stage would be divided",
        lambda store: build(
            _list_of_modules(), **JOB, store=store, args=(X,), mesh={"pp": 2, "tp": 2}
        ),
    ),
    "a mesh dimension without ranks": (
        "PPC002",
        "a mesh dimension has no ranks",
        lambda store: build(
            _list_of_modules(), **JOB, store=store, args=(X,), mesh={"pp": 2, "dp": 0}
        ),
    ),
    "a number of ranks beside a mesh": (
        "PPC002",
        "given twice",
        lambda store: build(
            _list_of_modules(), **JOB, store=store, args=(X,), ranks=2, mesh={"pp": 2}
        ),
    ),
    "a value between stages that is one for all rows": (
        "PPC531",
        "a boundary value of stage 0 does not hold one microbatch",
        lambda store: build([_Averaging(), models.End()], **JOB, store=store, args=(X,)),
    ),
    "an input that is only compared": (
        "PPC502",
        "the stage computes no gradient of its input 1",
        lambda store: build([models.Start(), _Comparing()], **JOB, store=store, args=(X,)),
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


def test_a_number_that_a_pipe_was_traced_with_is_part_of_its_programs() -> None:
    found = [_keys(_scaled(scale)) for scale in (2.0, 2.0, 3.0)]
    assert found[0] == found[1]
    changed = {name for name in found[0] if found[0][name] != found[2][name]}
    assert changed == {"programs[1].forward", "programs[1].backward"}


def _keys(pipe: Pipe) -> dict[str, str]:
    return _job(of_pipe.parts(pipe, keywords=(), device=CPU)).own_factors()


@pytest.mark.parametrize("make", [models.Pass, models.PassView])
def test_what_a_stage_passes_on_keeps_its_gradient(make: Any) -> None:
    """torch leaves results that are inputs, or views of them, out of the graph."""
    parts = of_modules.chain([models.Start(), make(), models.End()], (X,), {}, device=CPU)
    backward = _job(parts).trace(parts[1].named, 1).programs["backward"]
    assert ("argument_gradient", "1") in {(v.kind, v.name) for v in backward.outputs}


class _Checkpointing(models.Pass):
    def forward(self, x: torch.Tensor, first: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return checkpoint(self.block, x, use_reentrant=False), first


def test_a_modules_own_checkpointing_changes_nothing_that_is_saved() -> None:
    saved = []
    for make in (models.Pass, _Checkpointing):
        parts = of_modules.chain([models.Start(), make(), models.End()], (X,), {}, device=CPU)
        forward = _job(parts).trace(parts[1].named, 1).programs["forward"]
        saved.append([value for value in forward.outputs if value.kind == "saved"])
    assert saved[0] == saved[1]
    assert len(saved[0]) > 1


def _job(parts: list[Part]) -> PipelineJob:
    stages = len(parts)
    return PipelineJob(
        parts={part.index: part for part in parts},
        mesh=mesh_spec({"pp": stages}),
        schedule=replace(one_f_one_b(stages, 4), microbatch_size=models.ROWS),
        device=CPU,
        key=None,
    )


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
    "a stage of DTensors": (
        "PPC002",
        "up.weight is a DTensor",
        lambda store: stage(_divided(), 0, **JOB, store=store, num_stages=1, args=(X,)),
    ),
    "an input that is a DTensor": (
        "PPC002",
        "input 0 of a stage is a DTensor",
        lambda store: stage(
            models.Block(),
            0,
            **JOB,
            store=store,
            num_stages=1,
            args=(DTensor.from_local(X, init_device_mesh("cpu", (1,))),),
        ),
    ),
    "a module in DistributedDataParallel": (
        "PPC002",
        "wrapped for data parallelism",
        lambda store: stage(
            nn.parallel.DistributedDataParallel(models.Block()),
            0,
            **JOB,
            store=store,
            num_stages=1,
            args=(X,),
        ),
    ),
    "a mesh without names": (
        "PPC002",
        "dimensions without names",
        lambda store: stage(
            models.Block(),
            0,
            **JOB,
            store=store,
            num_stages=1,
            args=(X,),
            mesh=init_device_mesh("cpu", (1, 1)),
        ),
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


def test_a_file_for_other_stages(one_rank: None) -> None:
    made = PipelineStage(nn.Identity(), 0, 1, torch.device("cpu"))
    with pytest.raises(
        PrecompileError, match="gives rank 0 of the pipeline other stages"
    ) as raised:
        file_schedule(FOLDER / "interleaved1f1b_2x8.csv", [made])
    assert raised.value.code == "PPC003"
    assert raised.value.expected == "stages [0, 2]"
