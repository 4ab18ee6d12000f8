"""A job whose stages run torchtitan's GraphPP: what is traced, how it is compiled and loaded."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pp_precompile.contract.errors import CompileError, PrecompileError, Where
from pp_precompile.contract.program import Role
from pp_precompile.contract.schedule import backward_kinds
from pp_precompile.graph.overlap import overlapped
from pp_precompile.graph.roles import role_of
from pp_precompile.stage import private_torch
from pp_precompile.stage.fake_state import example, fake_state
from pp_precompile.stage.programs import TracedStage
from pp_precompile.stage.traced import TracedProgram
from pp_precompile.titan import graph_pp_supported, private_graph_pp
from pp_precompile.titan.graph_pass_job import GraphPassJob
from pp_precompile.titan.graph_pp_naming import Inputs, named_programs, overlap
from pp_precompile.titan.stored_graphs import LOSS_KEYWORDS


@dataclass(frozen=True, kw_only=True)
class GraphPPJob(GraphPassJob):
    """A pipeline with the engine ``graph_pp``."""

    def __post_init__(self) -> None:
        """Refuse what the configuration alone does not tell.

        Raises:
            UsageError: PPC002.
        """
        graph_pp_supported.check_mesh(self.mesh)
        graph_pp_supported.check_schedule(self.schedule)

    @property
    def traced_together(self) -> tuple[tuple[int, ...], ...]:
        """One stage after the other, or all at once where a program is made of two stages."""
        if overlapped(self.schedule):
            return (tuple(range(len(self.split))),)
        return super().traced_together

    def trace_all(self, modules: Mapping[int, nn.Module]) -> dict[int, TracedStage]:
        """Trace parallelized stage modules by index with torchtitan's tracer and passes.

        Raises:
            CompileError: PPC301 or PPC304.
        """
        programs = {}
        for index, module in modules.items():
            self._check_compiler(index)
            programs[index] = self._programs(module.train(), index)
        for index, (other,) in overlapped(self.schedule).items():
            if index in programs:
                forward, backward = programs[index]["forward"], programs[other]["backward"]
                programs[index]["overlap"] = overlap(forward, backward)
        return {index: self._stage(modules[index], index, programs[index]) for index in programs}

    def trace(self, module: nn.Module, stage: int) -> TracedStage:
        """Trace one stage that no other one's backward overlaps with."""
        return self.trace_all({stage: module})[stage]

    def _programs(self, module: nn.Module, index: int) -> dict[Role, TracedProgram]:
        is_last = index == len(self.split) - 1
        inputs = Inputs(
            arguments=self.inputs.arguments(index),
            keywords=self.inputs.keywords(),
            loss_arguments=self.loss_arguments(self.inputs) if is_last else (),
        )
        where = Where(stage=index)
        try:
            graphs = self._traced(module, index, inputs, is_last=is_last)
        except PrecompileError:
            raise
        except Exception as error:
            raise CompileError(
                "PPC301",
                f"torchtitan's GraphPP could not trace the stage: {type(error).__name__}: {error}",
                where=where,
                expected="a stage that GraphPP can trace",
                hint="try the job without --compile.precompile, or --compile.precompile_engine "
                "stage",
            ) from error
        found = named_programs(graphs, module, inputs, where)
        needed = {"forward", *self._backward_roles(found["backward"], index)}
        return {role: program for role, program in found.items() if role in needed}

    def _traced(self, module: nn.Module, index: int, inputs: Inputs, *, is_last: bool) -> Any:
        device = torch.device(self.device.type)
        with contextlib.ExitStack() as stack:
            stack.enter_context(private_graph_pp.settings())
            with private_torch.fake_tracing():
                stack.enter_context(fake_state(module, device))
                arguments = tuple(example(item.tensor, device) for item in inputs.arguments)
                keywords = {item.name: example(item.tensor, device) for item in inputs.keywords}
                of_loss = [example(item.tensor, device) for item in inputs.loss_arguments]
                taken = () if is_last else self.inputs.arguments(index + 1)
                gradients = tuple(example(item.tensor, device).detach() for item in taken)
            return private_graph_pp.trace(
                module,
                index,
                is_last=is_last,
                arguments=arguments,
                keywords=keywords,
                labels=of_loss[0] if is_last else None,
                loss_keywords=dict(zip(LOSS_KEYWORDS, of_loss[1:], strict=True)) if is_last else {},
                output_gradients=gradients,
                loss_fn=self.config.loss.build(compile_config=None) if is_last else None,
                config=self.config,
                compile_config=self._compile_config,
            )

    def _backward_roles(self, backward: TracedProgram, index: int) -> set[Role | None]:
        """Return the programs that the schedule's backward actions run."""
        given = {value.kind for value in backward.outputs}
        of_parameters = "parameter_gradient" in given
        if not of_parameters:
            raise CompileError(
                "PPC301",
                "GraphPP's programs need a parameter that is trained in every stage",
                where=Where(stage=index),
                expected="a parameter that requires a gradient",
                found="none",
                hint="put frozen layers in one stage with others",
            )
        of_arguments = "argument_gradient" in given
        kinds = backward_kinds(self.schedule, index)
        return {role_of(kind, of_arguments, of_parameters) for kind in kinds}
