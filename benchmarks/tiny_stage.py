"""A stage whose programs compute next to nothing, so that what is around them can be measured."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torchtitan.experiments.graph_trainer.simple_fsdp import data_parallel

from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.runtime.loader import LoadedStage, load_stage
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.stage.describe import describe
from pp_precompile.stage.programs import StageSource, compile_stages, trace_stage

ROWS, WIDTH = 4, 8


class Block(nn.Module):
    """Two small linear layers: two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH, bias=False)
        self.down = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` with something added."""
        return x + self.down(torch.nn.functional.silu(self.up(x)))


@contextmanager
def one_rank() -> Iterator[DeviceMesh]:
    """Enter a process group of this process alone; yields its mesh."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
    finally:
        dist.destroy_process_group()


def compiled_stage(blocks: int, mesh: DeviceMesh) -> tuple[nn.Module, LoadedStage]:
    """Return a module of ``blocks`` blocks, and the stage with its programs, whole and split.

    Parameters are DTensors over one rank, as every stage of torchtitan's graph_trainer has them.
    """
    module = data_parallel(nn.Sequential(*(Block() for _ in range(blocks))), mesh, "fully_shard")
    source = StageSource(
        index=1,
        modules=("blocks",),
        module=module,
        arguments=(NamedTensor(name="0", tensor=describe(inputs())),),
        keywords=(),
        backward_kinds=frozenset("BIW"),
    )
    traced = trace_stage(source, device=torch.device("cpu"), meshes=[mesh], compiler={})
    sink = MemorySink()
    return module, load_stage(traced.record(compile_stages([traced], sink)), sink.read)


def inputs() -> torch.Tensor:
    """Return what the stage is called with."""
    return torch.randn(ROWS, WIDTH, requires_grad=True)
