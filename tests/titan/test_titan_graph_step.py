"""The engine graph_pp without a pipeline: what it refuses, and on which torch."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from pp_precompile.contract.errors import CompileError, PrecompileError, UsageError
from pp_precompile.titan import private_graph_pp, private_step_graph
from pp_precompile.titan.graph_step_job import GraphStepJob
from pp_precompile.titan.offline import offline_job
from pp_precompile.titan.stages import parallel_arguments, parallel_stage
from pp_precompile.titan.supported import check_supported
from pp_precompile.titan.trainer import PrecompileTrainer
from tests.e2e import configs
from tests.graph_pp_runs import RUNS


def _config(compile_fields: dict[str, Any] | None = None, **parallelism: Any) -> Any:
    config: PrecompileTrainer.Config = configs.llama3_few_layers()
    given = {"precompile": True, "precompile_engine": "graph_pp"} | (compile_fields or {})
    config.compile = dataclasses.replace(config.compile, **given)
    config.parallelism = dataclasses.replace(config.parallelism, **parallelism)
    return config


def _overlap() -> Any:
    return dataclasses.replace(_config().compile.ep_overlap, enabled=True)


UNSUPPORTED: dict[str, Any] = {
    "compile.mode = jit": lambda: {"mode": "jit"},
    "compile.enable = False": lambda: {"enable": False},
    "compile.pass_pipeline = autoparallel": lambda: {"pass_pipeline": "autoparallel"},
    "compile.passes": lambda: {"passes": ["auto_bucketing"]},
    "compile.ep_overlap.enabled": lambda: {"ep_overlap": _overlap()},
}


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_what_a_stored_step_does_not_run_is_refused_by_name(text: str) -> None:
    check_supported(_config())
    with pytest.raises(UsageError, match=text) as raised:
        check_supported(_config(UNSUPPORTED[text]()))
    assert raised.value.code == "PPC002"


def test_parallelism_other_than_of_data_is_refused() -> None:
    with offline_job(_config(data_parallel_shard_degree=2, data_parallel_replicate_degree=2)) as (
        job,
        _,
    ):
        assert isinstance(job, GraphStepJob)
    with (
        pytest.raises(UsageError, match="mesh dimension tp = 2"),
        offline_job(_config(tensor_parallel_degree=2)),
    ):
        pass


def test_experts_in_parallel_are_refused() -> None:
    config = configs.qwen3_moe_few_layers()
    config.compile = _config().compile
    config.parallelism = dataclasses.replace(
        config.parallelism, data_parallel_shard_degree=2, expert_parallel_degree=2
    )
    with pytest.raises(UsageError, match="mesh dimension ep = 2"), offline_job(config):
        pass


def test_pipelines_are_refused_on_another_torch_and_steps_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = {
        "pipeline_parallel_degree": 2,
        "pipeline_parallel_schedule": "Interleaved1F1B",
    }
    if RUNS:
        private_graph_pp.check_version()
        check_supported(_config(**pipeline))
        monkeypatch.setattr(torch, "__version__", "2.15.0")
    with pytest.raises(PrecompileError, match="fwd_cache") as raised:
        check_supported(_config(**pipeline))
    assert raised.value.code == "PPC006"
    assert f"torch {torch.__version__}" in str(raised.value)
    # Neither do the other engine's.
    check_supported(_config({"precompile_engine": "stage"}, **pipeline))
    check_supported(_config())


def test_a_parameter_that_the_step_does_not_use_is_refused() -> None:
    with offline_job(_config()) as (job, model):
        module = parallel_stage(job, model, 0, parallel_arguments(job))
        module.register_parameter("unused", nn.Parameter(torch.empty(3, device="meta")))
        with pytest.raises(CompileError, match="could not trace the step") as raised:
            job.trace(module, 0)
    assert raised.value.code == "PPC301"


def test_a_trainer_that_runs_its_step_elsewhere_is_refused() -> None:
    with pytest.raises(PrecompileError, match="_make_fx_forward_backward_step") as raised:
        private_step_graph.install(SimpleNamespace(), lambda *_: None)
    assert raised.value.code == "PPC006"
