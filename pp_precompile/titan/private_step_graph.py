"""Every private part of graph_trainer's step graph that is used, in one place.

Without a pipeline graph_trainer traces a whole step, forward, loss and backward, as one graph
(``--compile.mode aot_fx_trace``). Checked with torchtitan 0.3.0 on torch 2.14.1 and 2.15.0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from pp_precompile.contract.errors import PrecompileError

_RUN = "_make_fx_forward_backward_step"
"""The method of graph_trainer's trainer that traces, compiles and runs the graph."""

Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Mapping[str, torch.Tensor]], Any]
"""Takes token ids, labels, number of tokens that count, and keyword inputs; returns the loss."""


@dataclass(frozen=True, kw_only=True)
class StepGraph:
    """A traced step after graph_trainer's passes, those excepted that compile.

    The graph's inputs are the values of parameters, buffers, token ids, labels, number of tokens
    and keyword inputs, in this order. It returns the loss, then the gradients of the parameters
    that are trained, which consist of as many values as ``gradients`` says.
    """

    graph: fx.GraphModule
    gradients: Sequence[int]


def trace(
    module: nn.Module,
    *,
    tokens: torch.Tensor,
    labels: torch.Tensor,
    count: torch.Tensor,
    keywords: dict[str, torch.Tensor],
    loss_fn: Callable[..., Any],
    config: Any,
    compile_config: Any,
    parallel_dims: Any,
) -> StepGraph:
    """Trace a step with graph_trainer's tracer; tensors, those of ``module`` too, may be fake."""
    from torchtitan.experiments.graph_trainer.make_fx_tracer import minimal_fx_tracer
    from torchtitan.experiments.graph_trainer.passes import apply_graph_passes, compile_time_passes
    from torchtitan.experiments.graph_trainer.trainer import make_fwd_bwd_step

    tracer = minimal_fx_tracer(make_fwd_bwd_step(module, loss_fn), module=module)
    traced = tracer(tokens, labels, count, keywords)
    graph = traced.gm
    if compile_config.enable_passes:
        passes = compile_time_passes(
            traced, config, parallel_dims=parallel_dims, include_inductor=False
        )
        graph = apply_graph_passes(
            graph, traced.example_inputs, passes, compile_config=compile_config
        )
    layouts = traced.output_subclass_layouts
    return StepGraph(
        graph=graph,
        gradients=[
            layouts[i].num_tensors if i in layouts else 1 for i in range(1, traced.num_flat_outputs)
        ],
    )


def install(trainer: Any, step: Step) -> None:
    """Make graph_trainer's trainer run ``step`` where it would trace and run its own graph.

    ``step`` adds to the parameters' gradients.

    Raises:
        PrecompileError: PPC006 for a torchtitan whose trainer has no such place.
    """
    if not hasattr(trainer, _RUN):
        raise PrecompileError(
            "PPC006",
            "torchtitan's graph_trainer runs its step in another way than is known",
            expected=f"torchtitan 0.3.0, whose trainer has {_RUN}",
            found=f"{type(trainer).__qualname__} without it",
            hint="install that version, or use --compile.precompile_engine stage",
        )

    def run(
        model: nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        global_valid_tokens: torch.Tensor,
        params: Sequence[torch.Tensor],
        extra_kwargs: Mapping[str, torch.Tensor],
    ) -> Any:
        with trainer.train_context():
            return step(inputs, labels, global_valid_tokens, extra_kwargs)

    setattr(trainer, _RUN, run)
