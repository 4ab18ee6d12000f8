"""Every private part of torchtitan's GraphPP that is used, in one place.

Checked with torchtitan 0.3.0 on torch 2.14.1. On torch 2.15 GraphPP itself breaks: its runtime
keeps forward results in ``PipelineStage.fwd_cache``, which is not there any more.
"""

import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx, nn

from pp_precompile.contract.errors import PrecompileError

TORCH = ("2.14",)
"""The torch versions (major.minor) that GraphPP of torchtitan 0.3.0 runs on."""

NOT_ON_A_CPU = (
    "joint_transformer_block_bucketing_reordering_pass",
    "cudagraph_pass",
    "insert_kernel_annotations_pass",
)
"""Passes of graph_trainer that a CPU cannot run: the first asks Triton for the memory bandwidth of
a GPU, the others are for CUDA graphs. They order gathers of shards and launches, and compute
nothing."""


def check_version() -> None:
    """Refuse a torch that torchtitan's GraphPP does not run on.

    Raises:
        PrecompileError: PPC006.
    """
    if ".".join(torch.__version__.split(".")[:2]) not in TORCH:
        raise PrecompileError(
            "PPC006",
            "torchtitan's GraphPP does not run on this torch",
            expected=f"torch {' or '.join(TORCH)} with torchtitan 0.3.0, whose GraphPP takes "
            "forward results from PipelineStage.fwd_cache",
            found=f"torch {torch.__version__}",
            hint="install that torch, or use --compile.precompile_engine stage",
        )


def runs(schedule: str) -> bool:
    """Tell whether GraphPP runs torch's schedule of this name: it needs one that is unrolled.

    Raises:
        ValueError: if torch has no such schedule.
    """
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime, get_schedule_class

    return issubclass(get_schedule_class(schedule), _PipelineScheduleRuntime)


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Set what graph_trainer sets for the whole process once it compiles, for a while."""
    from torch._dynamo import config as dynamo
    from torch._inductor import config as inductor

    changed = {"reorder_for_peak_memory": False, "eager_numerics.division_rounding": True}
    with inductor.patch(changed), dynamo.patch(capture_scalar_outputs=True):
        yield


def for_device(compile_config: Any, device: str) -> Any:
    """Return torchtitan's compile section without the passes that ``device`` cannot run."""
    if device != "cpu":
        return compile_config
    passes = [*compile_config.disable_passes]
    passes += [name for name in NOT_ON_A_CPU if name not in passes]
    return dataclasses.replace(compile_config, disable_passes=passes)


def pipeline(model: nn.Module, **arguments: Any) -> tuple[Any, list[nn.Module], bool, bool]:
    """Return what torchtitan's own GraphPP function makes of a model on meta.

    The first result runs the schedule; what it asks for graphs is its ``graph_provider``.
    """
    from torchtitan.experiments.graph_trainer.graph_pp.pipeline import graph_pipeline_llm

    return graph_pipeline_llm(model, **arguments)


def stages_of(runtime: Any) -> list[Any]:
    """Return the stages of this rank."""
    return list(runtime.schedule._stages)


def flat_values(tensor: torch.Tensor) -> list[Any]:
    """Return what GraphPP hands over for a tensor: itself, or the parts of a distributed one."""
    from torchtitan.experiments.graph_trainer.graph_pp.utils import flatten_graph_values

    return flatten_graph_values([tensor])


def trace(
    module: nn.Module,
    index: int,
    *,
    is_last: bool,
    arguments: tuple[torch.Tensor, ...],
    keywords: dict[str, torch.Tensor],
    labels: torch.Tensor | None,
    loss_keywords: dict[str, torch.Tensor],
    output_gradients: tuple[torch.Tensor, ...],
    loss_fn: Callable[..., Any] | None,
    config: Any,
    compile_config: Any,
) -> Any:
    """Return GraphPP's graphs of a stage, not compiled, with their metadata.

    Tensors, those of ``module`` included, may be fake. A stage is what GraphPP reads of one.
    """
    from torchtitan.experiments.graph_trainer.graph_pp.graph_builder import _build_stage_graphs

    stage = types.SimpleNamespace(
        submod=module,
        stage_index=index,
        is_last=is_last,
        graphs=None,
        _stage_meta=types.SimpleNamespace(outputs=None, output_grads=output_gradients),
        _to_tensor=lambda tensor: tensor,
    )
    _build_stage_graphs(
        stage,
        arguments,
        keywords,
        labels,
        loss_keywords,
        loss_fn=loss_fn,
        compile_config=compile_config,
        model_config=config.model_spec.model,
        parallelism=config.parallelism,
        compile_graphs=False,
    )
    return stage.graphs


def multiplex(forward: fx.GraphModule, backward: fx.GraphModule) -> fx.GraphModule:
    """Return a backward and a forward as one graph; the backward's values come first."""
    from torchtitan.experiments.graph_trainer.graph_pp.graph_multiplex import multiplex_fw_bw_graph

    return multiplex_fw_bw_graph(forward, backward)


def compile_graph(graph: fx.GraphModule, compile_config: Any) -> fx.GraphModule:
    """Compile a graph with the last of GraphPP's passes, as ``compile_config`` chooses them."""
    from torchtitan.experiments.graph_trainer.graph_pp.graph_builder import _compile_graph_pp_module

    return _compile_graph_pp_module(graph, compile_config=compile_config, graph_name="a program")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """The inputs and outputs of a stage's graphs, by position, as GraphPP's metadata tells them.

    ``forward_inputs`` are indices into what :func:`flat_values` gives for parameters, buffers and
    everything that forward is called with. A forward returns ``outputs`` values, then the
    ``saved`` ones, here by the name of their node. ``backward_inputs`` names the backward's nodes,
    of which ``tangents`` are gradients of outputs, with their positions. ``parameter_gradients``
    and ``argument_gradients`` say how many values each gradient consists of.
    """

    forward_inputs: Sequence[int]
    outputs: int
    saved: Sequence[str]
    backward_inputs: Sequence[str]
    tangents: dict[str, int]
    parameter_gradients: Sequence[int]
    argument_gradients: Sequence[int]
    gathers: bool


def signature(graphs: Any) -> Signature:
    """Read the metadata of :func:`trace`'s result."""
    meta, modules = graphs.meta, graphs.modules
    names, indices = meta.partition.backward_grad_input_names, meta.partition
    return Signature(
        forward_inputs=meta.fwd_flat_input_indices,
        outputs=meta.num_user_outputs,
        saved=meta.partition.saved_for_backward_names,
        backward_inputs=meta.partition.bwd_input_names,
        tangents=dict(zip(names, indices.backward_grad_input_indices, strict=True)),
        parameter_gradients=_counts(meta.param_grad_values),
        argument_gradients=_counts(meta.input_grad_values),
        gathers=modules.unshard is not None or modules.reduce_grad is not None,
    )


def _counts(spec: Any) -> list[int]:
    return [
        spec.layouts[index].num_tensors if index in spec.layouts else 1
        for index in range(spec.num_values)
    ]
