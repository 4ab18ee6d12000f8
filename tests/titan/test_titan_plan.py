"""Planning a build: its stages are traced and checked, nothing is compiled or left behind."""

import dataclasses
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

from pp_precompile.contract.errors import CompileError
from pp_precompile.models import llama3
from pp_precompile.stage.counters import counters
from pp_precompile.titan.offline import Listener, offline_job
from pp_precompile.titan.plan import plan
from pp_precompile.titan.trainer import PrecompileTrainer


def _config(*parts: list[str], **parallelism: Any) -> PrecompileTrainer.Config:
    """A debug model of two layers, cut into ``parts``."""
    config = llama3.llama3_debugmodel_sdpa()
    config.compile.precompile = True
    model = config.model_spec.model
    model.layers = model.layers[:2]
    config.parallelism = dataclasses.replace(
        config.parallelism,
        pipeline_parallel_degree=2,
        module_fqns_per_model_part=list(parts),
        **parallelism,
    )
    return config


FIRST, LAST = ["tok_embeddings", "layers.0"], ["layers.1", "norm", "lm_head"]


def test_stages_are_traced_and_nothing_is_compiled() -> None:
    traced: list[tuple[int, int]] = []
    config = _config(FIRST, LAST)
    with counters.expect():
        planned = plan(config, Listener(traced=lambda *stage: traced.append(stage)))
    assert traced == [(0, 2), (1, 3)]
    assert not dist.is_initialized()
    with offline_job(config) as (job, model):
        assert planned.build == job.build_id
    assert sum(stage.parameter_bytes for stage in planned.stages) == 4 * _size(model)


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameter_bytes_are_those_of_one_rank() -> None:
    config = _config(FIRST, LAST, data_parallel_shard_degree=2)
    planned = plan(config)
    with offline_job(config) as (_, model):
        assert 2 * sum(stage.parameter_bytes for stage in planned.stages) == 4 * _size(model)
    roles = [item.role for item in planned.stages[0].programs]
    assert roles == ["unshard", "forward", "backward", "reduce_grad"]


def test_what_a_build_would_refuse_after_compiling_is_refused() -> None:
    exchanged = _config(["tok_embeddings", "layers.1"], ["layers.0", "norm", "lm_head"])
    with pytest.raises(CompileError) as raised:
        plan(exchanged)
    assert raised.value.code == "PPC513"
    assert not dist.is_initialized()
