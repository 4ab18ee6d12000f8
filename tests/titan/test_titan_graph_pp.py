"""The engine graph_pp: what it refuses, and what is part of a job's key."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from pp_precompile.contract.errors import CompileError, UsageError
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.models import llama3
from pp_precompile.titan import graph_pp_supported, private_graph_pp
from pp_precompile.titan.graph_pp_job import GraphPPJob
from pp_precompile.titan.offline import build, offline_job
from pp_precompile.titan.stages import parallel_arguments, parallel_stage
from pp_precompile.titan.supported import check_supported
from pp_precompile.titan.trainer import PrecompileTrainer
from tests.e2e import configs
from tests.graph_pp_runs import needs_graph_pp

pytestmark = needs_graph_pp


def _config(**parallelism: Any) -> PrecompileTrainer.Config:
    config = llama3.llama3_debugmodel_sdpa()
    config.compile.precompile = True
    config.compile.precompile_engine = "graph_pp"
    given: dict[str, Any] = {
        "pipeline_parallel_degree": 2,
        "pipeline_parallel_schedule": "Interleaved1F1B",
    }
    config.parallelism = dataclasses.replace(config.parallelism, **(given | parallelism))
    return config


UNSUPPORTED: dict[str, Any] = {
    "pipeline_parallel_schedule = GPipe": {"pipeline_parallel_schedule": "GPipe"},
    "pipeline_parallel_schedule = 1F1B": {"pipeline_parallel_schedule": "1F1B"},
    "fsdp_reshard_after_forward = always": {"fsdp_reshard_after_forward": "always"},
}


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_what_graph_pp_does_not_run_is_refused_with_its_reason(text: str) -> None:
    check_supported(_config())
    with pytest.raises(UsageError, match=text) as raised:
        check_supported(_config(**UNSUPPORTED[text]))
    assert raised.value.code == "PPC002"
    assert "GraphPP" in str(raised.value)


@pytest.mark.parametrize("field", ["mode", "enable"])
def test_graph_pp_needs_graph_trainers_compilation(field: str) -> None:
    config = _config()
    config.compile = dataclasses.replace(
        config.compile, **{field: False if field == "enable" else "jit"}
    )
    with pytest.raises(UsageError, match=f"compile.{field}"):
        check_supported(config)


def test_a_loss_in_chunks_is_refused() -> None:
    config = _config()
    config.loss = configs.llama3_chunked_loss().loss
    with pytest.raises(UsageError, match="ChunkedLoss"):
        check_supported(config)


@pytest.mark.parametrize("degree", ["data_parallel_shard_degree", "tensor_parallel_degree"])
def test_parallelism_inside_a_stage_is_refused(degree: str) -> None:
    with pytest.raises(UsageError, match="fails on sharded"), offline_job(_config(**{degree: 2})):
        pass


def test_several_processes_are_refused() -> None:
    with pytest.raises(UsageError, match="2 jobs") as raised:
        build(_config(), store=None, jobs=2)  # type: ignore[arg-type]
    assert raised.value.code == "PPC002"


def _table(*actions: str) -> ScheduleTable:
    return ScheduleTable(
        name="x",
        csv=None,
        microbatches=4,
        microbatch_size=1,
        stages_of_rank=((0, 1, 2),),
        actions=(actions,),
    )


def test_overlaps_that_graph_pp_cannot_run_are_refused() -> None:
    graph_pp_supported.check_schedule(_table("(0F1;1B0)OVERLAP_F_B", "(1F1;0B0)OVERLAP_F_B"))
    with pytest.raises(UsageError, match="whole backward"):
        graph_pp_supported.check_schedule(_table("(0F1;1I0)OVERLAP_F_B"))
    with pytest.raises(UsageError, match=r"stages \[1, 2\]"):
        graph_pp_supported.check_schedule(_table("(0F1;1B0)OVERLAP_F_B", "(0F2;2B0)OVERLAP_F_B"))


def test_a_cpu_runs_without_the_passes_that_need_a_gpu() -> None:
    given = dataclasses.replace(_config().compile, disable_passes=["cudagraph_pass", "mine"])
    on_cpu = private_graph_pp.for_device(given, "cpu").disable_passes
    assert on_cpu[:2] == ["cudagraph_pass", "mine"]
    assert sorted(on_cpu) == sorted({"mine", *private_graph_pp.NOT_ON_A_CPU})
    assert private_graph_pp.for_device(given, "cuda") is given


def test_the_engine_and_its_passes_are_part_of_the_key() -> None:
    ids = set()
    for change in (
        {},
        {"precompile_engine": "stage"},
        {"inductor_compilation": "full"},
        {"disable_passes": ["selective_activation_remat_pass"]},
    ):
        config = _config()
        config.compile = dataclasses.replace(config.compile, **change)
        with offline_job(config) as (job, _):
            assert isinstance(job, GraphPPJob) == (change != {"precompile_engine": "stage"})
            ids.add(job.build_id)
    assert len(ids) == 4


def _freeze(module: nn.Module) -> None:
    module.requires_grad_(False)


def _add_unused(module: nn.Module) -> None:
    parameter = nn.Parameter(torch.empty(3, device="meta"))
    module.register_parameter("unused", parameter)


def _change_in_place(module: nn.Module) -> None:
    original = module.forward

    def forward(hidden: torch.Tensor, **keywords: torch.Tensor) -> Any:
        torch.zeros(3).add_(1)  # is nobody's business
        hidden.detach().view(-1)[:1].add_(1)
        return original(hidden, **keywords)

    module.forward = forward


UNTRACED: dict[str, tuple[Any, str, str]] = {
    "a frozen stage": (_freeze, "PPC301", "need a parameter that is trained"),
    "a parameter without a gradient": (_add_unused, "PPC301", "unused gets no gradient"),
    "an activation that is changed": (
        _change_in_place,
        "PPC304",
        "a change in place of argument 0",
    ),
}


@pytest.mark.parametrize("name", UNTRACED)
def test_stages_that_cannot_be_programs_are_refused(name: str) -> None:
    change, code, text = UNTRACED[name]
    config = configs.llama3_few_layers()
    config.compile, config.parallelism = _config().compile, _config().parallelism
    with offline_job(config) as (job, model):
        module = parallel_stage(job, model, 1, parallel_arguments(job))
        change(module)
        with pytest.raises(CompileError, match=text) as raised:
            job.trace_all({1: module})
    assert raised.value.code == code
