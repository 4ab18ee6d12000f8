"""A job without a pipeline whose whole step is one graph of graph_trainer's."""

import contextlib
from dataclasses import dataclass

import torch
from torch import nn

from pp_precompile.contract.errors import CompileError, PrecompileError, Where
from pp_precompile.stage import private_torch
from pp_precompile.stage.fake_state import example, fake_state
from pp_precompile.stage.portable import logical_groups, use_logical_groups
from pp_precompile.stage.programs import TracedStage
from pp_precompile.titan import graph_pp_supported, private_graph_pp, private_step_graph
from pp_precompile.titan.graph_pass_job import GraphPassJob
from pp_precompile.titan.graph_pp_naming import Inputs, step_program
from pp_precompile.titan.private_step_graph import StepGraph


@dataclass(frozen=True, kw_only=True)
class GraphStepJob(GraphPassJob):
    """A pipeline of one stage, whose forward returns the loss and all gradients."""

    def __post_init__(self) -> None:
        """Refuse what the configuration alone does not tell.

        Raises:
            UsageError: PPC002.
        """
        graph_pp_supported.check_step_mesh(self.mesh)

    def trace(self, module: nn.Module, stage: int) -> TracedStage:
        """Trace the parallelized model with torchtitan's tracer and passes.

        Raises:
            CompileError: PPC301 or PPC304.
        """
        self._check_compiler(stage)
        inputs = Inputs(
            arguments=self.inputs.arguments(stage),
            keywords=self.inputs.keywords(),
            loss_arguments=self.loss_arguments(self.inputs),
            order=("argument", "loss_argument", "keyword"),
        )
        where = Where(stage=stage)
        try:
            step = self._traced(module.train(), inputs)
        except PrecompileError:
            raise
        except Exception as error:
            raise CompileError(
                "PPC301",
                f"torchtitan's graph_trainer could not trace the step: "
                f"{type(error).__name__}: {error}",
                where=where,
                expected="a model that graph_trainer can trace",
                hint="try the job without --compile.precompile, or --compile.precompile_engine "
                "stage",
            ) from error
        program = step_program(step, module, inputs, where)
        use_logical_groups(program.graph, logical_groups(self.meshes()))
        return self._stage(module, stage, {"forward": program})

    def _traced(self, module: nn.Module, inputs: Inputs) -> StepGraph:
        device = torch.device(self.device.type)
        with contextlib.ExitStack() as stack:
            stack.enter_context(private_graph_pp.settings())
            with private_torch.fake_tracing():
                stack.enter_context(fake_state(module, device))
                [tokens] = [example(item.tensor, device) for item in inputs.arguments]
                labels, count = [example(item.tensor, device) for item in inputs.loss_arguments]
                keywords = {item.name: example(item.tensor, device) for item in inputs.keywords}
            return private_step_graph.trace(
                module,
                tokens=tokens,
                labels=labels,
                count=count,
                keywords=keywords,
                loss_fn=self.config.loss.build(compile_config=None),
                config=self.config,
                compile_config=self._compile_config,
                parallel_dims=self.parallel_dims,
            )
