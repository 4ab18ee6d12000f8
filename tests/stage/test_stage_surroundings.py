"""A worker process compiles under the settings, modes and groups of the process that traces."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from pp_precompile.contract.errors import CompileError
from pp_precompile.stage.compile import compiler_factors
from pp_precompile.stage.private_torch import resolve_group
from pp_precompile.stage.surroundings import describe_surroundings


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Undo what a test enters."""
    before = describe_surroundings()
    yield
    before.enter()


def test_settings_and_modes_are_taken_over() -> None:
    import torch._inductor.config as inductor

    assert inductor.epilogue_fusion
    with inductor.patch({"epilogue_fusion": False, "cpp.simdlen": 128}):
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_float32_matmul_precision("high")
        described = describe_surroundings()
        factors = compiler_factors()
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    assert compiler_factors() != factors
    described.enter()
    assert compiler_factors() == factors
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.get_float32_matmul_precision() == "high"


def test_settings_that_do_not_arrive_are_noticed() -> None:
    import torch._inductor.config as inductor

    with inductor.patch({"epilogue_fusion": False}):
        described = describe_surroundings()
    lost = replace(described, settings={})
    with pytest.raises(CompileError) as raised:
        lost.enter()
    assert raised.value.code == "PPC304"
    assert "compiler.inductor_config" in str(raised.value)
    assert "--jobs 1" in str(raised.value)


def test_modes_that_do_not_arrive_are_noticed() -> None:
    described = describe_surroundings()
    torch.set_float32_matmul_precision("high")
    lost = replace(described, modes=describe_surroundings().modes)
    with pytest.raises(CompileError) as raised:
        lost.enter()
    assert raised.value.code == "PPC304"
    assert "torch.float32_matmul_precision" in str(raised.value)


def test_groups_are_joined_under_their_logical_names_and_left_again() -> None:
    dist.init_process_group("fake", rank=5, world_size=8)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("pp", "fsdp"))
    described = describe_surroundings([mesh["fsdp"]])
    dist.destroy_process_group()

    described.enter()
    group = resolve_group("pp_precompile/fsdp")
    assert (dist.get_rank(), dist.get_world_size()) == (5, 8)
    assert dist.get_process_group_ranks(group) == [4, 5, 6, 7]
    assert group.rank() == 1

    replace(described, rank=0, world_size=0, groups=()).enter()
    assert not dist.is_initialized()


def test_imports_come_first() -> None:
    def prepare() -> None:
        raise ImportError("no such model")

    with pytest.raises(ImportError, match="no such model"):
        describe_surroundings(prepare=prepare).enter()
