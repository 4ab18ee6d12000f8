"""Whichever rank traces a stage, the programs are the same."""

import dataclasses
from typing import Any

import pytest
from torch import fx

from pp_precompile.contract.errors import Where
from pp_precompile.stage.compile import compile_program, to_bytes
from pp_precompile.stage.programs import KeyedProgram
from pp_precompile.titan.offline import Listener, offline_job, trace_stages
from pp_precompile.titan.trainer import PrecompileTrainer
from tests.e2e import configs

Programs = dict[tuple[int, str], KeyedProgram]


def _config(name: str, **degrees: int) -> PrecompileTrainer.Config:
    config: PrecompileTrainer.Config = getattr(configs, name)()
    config.compile.precompile = True
    names = {f"{key}_degree": value for key, value in degrees.items()}
    config.parallelism = dataclasses.replace(config.parallelism, **names)
    return config


def _trace(rank: int, name: str, **degrees: int) -> Programs:
    with offline_job(_config(name, **degrees), rank=rank) as (job, model):
        stages = trace_stages(job, model, Listener())
        return {(s.source.index, role): p for s in stages for role, p in s.programs.items()}


JOBS: dict[str, tuple[str, dict[str, int]]] = {
    "PP2 x TP4": (
        "llama3_few_layers",
        {"pipeline_parallel": 2, "tensor_parallel": 4, "data_parallel_shard": 1},
    ),
    "HSDP 2 x 2 x TP2": (
        "llama3_few_layers",
        {"data_parallel_replicate": 2, "data_parallel_shard": 2, "tensor_parallel": 2},
    ),
    "FSDP4 x EP2": (
        "deepseek_v3_few_layers",
        {"data_parallel_shard": 4, "expert_parallel": 2},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_first_and_the_last_rank_trace_the_same_programs(name: str) -> None:
    config, degrees = JOBS[name]
    ranks = 1
    for key, degree in degrees.items():
        ranks *= 1 if key == "expert_parallel" else degree
    first, last = (_trace(rank, config, **degrees) for rank in (0, ranks - 1))
    assert {k: p.key for k, p in first.items()} == {k: p.key for k, p in last.items()}
    assert {k: p.inputs for k, p in first.items()} == {k: p.inputs for k, p in last.items()}


def test_equal_programs_compile_to_equal_bytes() -> None:
    config, degrees = JOBS["PP2 x TP4"]
    one, other = (_compile_loss(rank, config, **degrees) for rank in (0, 7))
    assert one == other


def _compile_loss(rank: int, name: str, **degrees: int) -> bytes:
    with offline_job(_config(name, **degrees), rank=rank) as (job, model):
        *_, last = trace_stages(job, model, Listener())
        loss = last.programs["loss"]
        assert "coordinate" in {value.kind for value in loss.inputs}
        return to_bytes(compile_program(loss.graph, Where(stage=1)))


def test_no_program_holds_a_rank() -> None:
    config, degrees = JOBS["PP2 x TP4"]
    rank, piece = 3, 2048 // 4
    programs = _trace(rank, config, **degrees)
    numbers = {n for p in programs.values() for n in _numbers(p.graph)}
    # The vocabulary's pieces start at 512 times the rank.
    assert piece in numbers
    assert rank * piece not in numbers
    embedding = programs[0, "forward"]
    assert [v.name for v in embedding.inputs if v.kind == "coordinate"] == ["tp"]


def _numbers(graph: fx.GraphModule) -> set[int]:
    found: set[int] = set()

    def note(value: Any) -> Any:
        if isinstance(value, int):
            found.add(value)
        return value

    for node in graph.graph.nodes:
        fx.node.map_aggregate((node.args, node.kwargs), note)
    return found
