"""Split, schedule, inputs and refusals of a job, from its configuration alone."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pp_precompile.contract.errors import CompileError, UsageError
from pp_precompile.models import llama3
from pp_precompile.titan import private_titan
from pp_precompile.titan.inputs import StageInputs
from pp_precompile.titan.job import Job
from pp_precompile.titan.offline import offline_job
from pp_precompile.titan.schedule import check_microbatches
from pp_precompile.titan.supported import check_device, check_supported
from pp_precompile.titan.trainer import PrecompileTrainer


def _config(degree: int = 4, **parallelism: Any) -> PrecompileTrainer.Config:
    config = llama3.llama3_debugmodel_sdpa()
    config.compile.precompile = True
    config.parallelism = dataclasses.replace(
        config.parallelism, pipeline_parallel_degree=degree, **parallelism
    )
    return config


@pytest.fixture
def job() -> Iterator[Job]:
    """A PP4 job under a fake process group."""
    with offline_job(_config()) as (job, _):
        yield job


def test_the_split_is_torchtitans(job: Job) -> None:
    assert job.split == (
        ("tok_embeddings", "layers.0"),
        ("layers.1", "layers.2"),
        ("layers.3", "layers.4"),
        ("layers.5", "norm", "lm_head"),
    )


def test_the_schedule_is_unrolled_for_every_rank(job: Job) -> None:
    assert job.schedule.stages_of_rank == ((0,), (1,), (2,), (3,))
    assert job.schedule.microbatches == 8
    for rank, actions in enumerate(job.schedule.actions):
        assert [a for a in actions if a[1] == "F"] == [f"{rank}F{m}" for m in range(8)]
        assert [a for a in actions if a[1] == "B"] == [f"{rank}B{m}" for m in range(8)]
    assert job.schedule.actions[3][:4] == ("3F0", "3B0", "3F1", "3B1")


def test_one_stage_needs_no_pipeline() -> None:
    with offline_job(_config(degree=1)) as (job, _):
        assert job.schedule.actions == (("0F0", "0B0"),)
        assert job.schedule.microbatch_size == 8
        assert len(job.split) == 1
        assert job.mesh.world_size == 1


def test_a_layer_left_out_or_named_twice_is_refused() -> None:
    parts = [["tok_embeddings", "layers.0"], ["layers.1", "layers.1", "norm", "lm_head"]]
    config = _config(degree=2, module_fqns_per_model_part=parts)
    with pytest.raises(UsageError) as raised, offline_job(config):
        pass
    assert raised.value.code == "PPC004"
    assert "layers.5" in str(raised.value.found)
    assert "more than once ['layers.1']" in str(raised.value.found)


def test_stages_must_be_dealt_out_evenly() -> None:
    parts = [["tok_embeddings", "layers.0"], ["layers.1", "layers.2"]]
    parts += [["layers.3", "layers.4", "layers.5", "norm", "lm_head"]]
    config = _config(degree=2, module_fqns_per_model_part=parts)
    with pytest.raises(UsageError, match="3 stages") as raised, offline_job(config):
        pass
    assert raised.value.code == "PPC004"


@pytest.mark.parametrize(("batch", "size", "stages"), [(8, 3, 2), (8, 0, 2), (2, 1, 4), (8, 4, 4)])
def test_batches_that_do_not_fit_are_refused_with_the_numbers(
    batch: int, size: int, stages: int
) -> None:
    with pytest.raises(UsageError) as raised:
        check_microbatches(batch, size, stages)
    assert raised.value.code == "PPC003"
    assert str(batch) in str(raised.value.found)


def test_a_batch_that_fits_is_taken() -> None:
    check_microbatches(8, 2, 4)


def test_world_size_must_match_the_degrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "6")
    with pytest.raises(UsageError, match="a multiple of 4 ranks"), offline_job(_config()):
        pass
    monkeypatch.setenv("WORLD_SIZE", "8")
    with offline_job(_config()) as (job, _):
        assert job.mesh.size("dp_shard") == 2


def test_inputs_follow_sizes_dtypes_and_loss() -> None:
    config = _config()
    config.training.mixed_precision_param = "bfloat16"
    inputs = StageInputs(config, 2, "cpu", split=(("tok_embeddings",), ("layers.0",)))
    (tokens,), (hidden,) = inputs.arguments(0), inputs.arguments(1)
    assert (tokens.tensor.shape, tokens.tensor.dtype) == ((2, 256), "int64")
    assert (hidden.tensor.shape, hidden.tensor.dtype) == ((2, 256, 256), "bfloat16")
    assert hidden.tensor.requires_grad
    assert not tokens.tensor.requires_grad
    assert inputs.loss_arguments()[0].tensor.shape == (2, 256, 2048)


def test_the_key_follows_what_can_reach_a_program() -> None:
    changes: dict[str, Any] = {
        "seq_len": lambda c: setattr(c.training, "seq_len", 128),
        "dtype": lambda c: setattr(c.training, "mixed_precision_param", "bfloat16"),
        "eps": lambda c: setattr(c.model_spec.model.norm, "eps", 1e-3),
        "batch": lambda c: setattr(c.training, "local_batch_size", 16),
    }
    ids = {}
    for name, change in changes.items():
        config = _config()
        change(config)
        ids[name] = _build_id(config)
    ids["base"] = _build_id(_config())
    ids["fsdp"] = _build_id(_config(data_parallel_shard_degree=2))
    ids["schedule"] = _build_id(_config(pipeline_parallel_schedule="GPipe"))
    assert len(set(ids.values())) == len(ids)
    same = _config()
    same.training.steps, same.debug.seed, same.dump_folder = 7, 3, "elsewhere"
    assert _build_id(same) == ids["base"]


def _build_id(config: PrecompileTrainer.Config) -> str:
    with offline_job(config) as (job, _):
        return job.build_id


def test_settings_changed_after_the_key_was_taken_are_noticed(job: Job) -> None:
    import torch._inductor.config as inductor

    with (
        inductor.patch({"epilogue_fusion": not inductor.epilogue_fusion}),
        pytest.raises(CompileError) as raised,
    ):
        job.trace(None, 0)  # type: ignore[arg-type]
    assert raised.value.code == "PPC304"
    assert "compiler.inductor_config" in str(raised.value.where)


UNSUPPORTED: dict[str, Any] = {
    "tensor_parallel_degree": lambda c: setattr(c.parallelism, "tensor_parallel_degree", 3),
    "context_parallel_degree": lambda c: setattr(c.parallelism, "context_parallel_degree", 2),
    "spmd_backend": lambda c: setattr(c.parallelism, "spmd_backend", "spmd_types"),
    "memory_policy": lambda c: setattr(c.compile, "memory_policy", "sac_and_offload"),
    "enable_autoparallel": lambda c: setattr(c.compile, "enable_autoparallel", True),
    "enable_cpu_offload": lambda c: setattr(c.training, "enable_cpu_offload", True),
    "comm.mode": lambda c: setattr(c.comm, "mode", "fake_backend"),
    "attention": lambda c: setattr(
        c.model_spec, "model", llama3.llama3_debugmodel().model_spec.model
    ),
    "loss": lambda c: setattr(c, "loss", object()),
}


@pytest.mark.parametrize("field", UNSUPPORTED)
def test_what_is_not_supported_is_refused_by_name(field: str) -> None:
    config = _config()
    check_supported(config)
    UNSUPPORTED[field](config)
    with pytest.raises(UsageError) as raised:
        check_supported(config)
    assert raised.value.code == "PPC002"
    assert field in str(raised.value)


def test_programs_run_on_the_first_visible_device_only() -> None:
    check_device(torch.device("cpu"))
    check_device(torch.device("cuda", 0))
    with pytest.raises(UsageError, match="--virtual-local-rank") as raised:
        check_device(torch.device("cuda", 3))
    assert raised.value.code == "PPC002"


def test_an_unknown_torchtitan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    private_titan.check_version()
    monkeypatch.setattr(private_titan, "version", lambda _: "0.9.0")
    with pytest.raises(Exception, match=r"0\.9\.0") as raised:
        private_titan.check_version()
    assert raised.value.code == "PPC006"  # type: ignore[attr-defined]


def test_configurations_keep_torchtitans_names() -> None:
    names = {"llama3_debugmodel", "llama3_8b", "llama3_70b", "llama3_debugmodel_sdpa"}
    assert all(isinstance(getattr(llama3, name)(), PrecompileTrainer.Config) for name in names)
