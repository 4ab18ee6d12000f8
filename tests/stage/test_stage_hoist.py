"""Parameters are gathered, and gradients reduced, once a step by programs of their own."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchtitan.experiments.graph_trainer.simple_fsdp import MixedPrecisionPolicy, data_parallel

from pp_precompile.stage.programs import TracedStage, trace_stage
from pp_precompile.titan import private_titan
from tests.modules import CPU, Block, source

X = torch.empty(4, 8, requires_grad=True)
NAMES = {"proj.weight", "proj.bias"}


@pytest.fixture(scope="module", autouse=True)
def two_ranks() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def own_classes() -> None:
    """Keep one test's precision out of the next one's modules."""
    private_titan.forget_wrapped_classes()


def _stage(
    mode: str = "fully_shard", *, once: bool = True, kinds: str = "BIW", **policy: Any
) -> TracedStage:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
    module: nn.Module = data_parallel(
        Block(), mesh, mode=mode, mp_policy=MixedPrecisionPolicy(**policy)
    )
    x = X.detach().to(policy.get("param_dtype", X.dtype)).requires_grad_()
    stage = dataclasses.replace(
        source(module, x, scale=torch.ones((), dtype=x.dtype)),
        backward_kinds=frozenset(kinds),
        gather_once=once,
    )
    return trace_stage(stage, device=CPU, meshes=[mesh], compiler={})


def _collectives(stage: TracedStage, role: str) -> Counter[str]:
    graph = stage.programs[role].graph.graph
    names = (str(node.target) for node in graph.nodes)
    return Counter(name.split(".")[1] for name in names if name.startswith("_c10d_functional"))


def _named(stage: TracedStage, role: str, side: str, kind: str) -> dict[str, str]:
    values = getattr(stage.programs[role], side)
    return {v.name: v.tensor.dtype for v in values if v.kind == kind}


def test_without_it_every_microbatch_gathers_and_reduces() -> None:
    stage = _stage(once=False, kinds="B")
    assert stage.programs.keys() == {"forward", "backward"}
    assert _collectives(stage, "forward")["all_gather_into_tensor"] == 2
    assert _collectives(stage, "backward") == {
        "all_gather_into_tensor": 1,  # of the bias backward needs nothing
        "reduce_scatter_tensor": 2,
        "wait_tensor": 3,
    }


def test_with_it_no_microbatch_communicates() -> None:
    stage = _stage()
    for role in ("forward", "backward", "backward_input", "backward_weight"):
        assert _collectives(stage, role) == {}, role
    assert _collectives(stage, "unshard") == {"all_gather_into_tensor": 2, "wait_tensor": 2}
    assert _collectives(stage, "reduce_grad") == {"reduce_scatter_tensor": 2, "wait_tensor": 2}


def test_what_is_handed_over_is_named_by_parameter() -> None:
    stage = _stage()
    assert _named(stage, "unshard", "inputs", "parameter").keys() == NAMES
    assert _named(stage, "unshard", "outputs", "unsharded").keys() == NAMES
    assert _named(stage, "forward", "inputs", "unsharded").keys() == NAMES
    assert _named(stage, "forward", "inputs", "parameter") == {}
    assert _named(stage, "backward", "outputs", "unsharded_gradient").keys() == NAMES
    assert _named(stage, "backward_weight", "outputs", "unsharded_gradient").keys() == NAMES
    assert _named(stage, "reduce_grad", "outputs", "parameter_gradient").keys() == NAMES


def test_no_parameter_is_saved_for_backward() -> None:
    for once in (True, False):
        stage = _stage(once=once)
        aliases = {v.alias for v in stage.programs["forward"].outputs if v.alias}
        assert any(alias.startswith("parameter:") for alias in aliases) is not once


def test_collectives_start_before_the_first_is_waited_for() -> None:
    stage = _stage()
    for role in ("unshard", "reduce_grad"):
        nodes = [str(node.target) for node in stage.programs[role].graph.graph.nodes]
        waits = [i for i, name in enumerate(nodes) if "wait_tensor" in name]
        starts = [i for i, name in enumerate(nodes) if "_tensor" in name and i not in waits]
        assert max(starts) < min(waits)


def test_sums_are_taken_in_the_dtype_that_is_reduced_in() -> None:
    stage = _stage(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    assert set(_named(stage, "unshard", "outputs", "unsharded").values()) == {"bfloat16"}
    summed = _named(stage, "backward", "outputs", "unsharded_gradient")
    assert set(summed.values()) == {"float32"}
    given = _named(stage, "reduce_grad", "outputs", "parameter_gradient")
    assert set(given.values()) == {"float32"}


def test_replicated_parameters_are_only_reduced_once() -> None:
    stage = _stage("replicate")
    assert "unshard" not in stage.programs
    assert _collectives(stage, "reduce_grad") == {"all_reduce": 2, "wait_tensor": 2}
    assert _collectives(stage, "backward") == {}
    assert _named(stage, "forward", "inputs", "parameter").keys() == NAMES


def test_a_stage_without_data_parallelism_stays_as_it_is() -> None:
    plain = dataclasses.replace(source(Block(), X, scale=torch.ones(())), gather_once=True)
    stage = trace_stage(plain, device=CPU, meshes=[], compiler={})
    assert stage.programs.keys() == {"forward", "backward"}


class Twice(Block):
    """Uses its weight both as a whole and for each row, so that it is gathered twice."""

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        return super().forward(x, scale=scale) + self.get_submodule("proj").weight.sum()


def test_a_parameter_that_is_read_twice_is_gathered_once() -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
    module = data_parallel(Twice(), mesh, mode="fully_shard")
    stage = trace_stage(
        dataclasses.replace(source(module, X, scale=torch.ones(())), gather_once=True),
        device=CPU,
        meshes=[mesh],
        compiler={},
    )
    assert _collectives(stage, "forward") == {}
    assert _collectives(stage, "unshard")["all_gather_into_tensor"] == 2
    # Its gradient is a sum of two reductions, which cannot be taken out.
    assert _named(stage, "reduce_grad", "outputs", "parameter_gradient").keys() == {"proj.bias"}
    assert "proj.weight" in _named(stage, "backward", "outputs", "parameter_gradient")
