"""Stored programs behind the interface that torchtitan's GraphPP runs its graphs through.

GraphPP's runtime calls one object for each stage, and one for each overlap of two
(``GraphPPStageGraphs`` and ``GraphPPOverlapGraphs`` of torchtitan's ``graph_pp/stage.py``). Theirs
pack and unpack by positions that tracing left behind; these do it by the names in the manifest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pp_precompile.contract.errors import PrecompileError, StaleBuildError, Where
from pp_precompile.contract.program import Kind, Role, Value
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.overlap import overlapped
from pp_precompile.runtime.loader import LoadedStage

Tensors = Sequence[torch.Tensor]

LOSS_KEYWORDS = ("global_valid_tokens",)
"""What torchtitan hands the loss by keyword, behind prediction and labels."""


class StoredGraphProvider:
    """Gives GraphPP's runtime the graphs of this rank's stages: loaded ones."""

    def __init__(self, schedule: ScheduleTable, stages: Mapping[int, LoadedStage]) -> None:
        """``stages`` are the loaded ones of this rank by index."""
        self._schedule = schedule
        self._loaded = stages
        self._overlaps: dict[tuple[int, int], StoredOverlap] | None = None

    def prepare_graphs(
        self, schedule: Any, ctx: Any, *, loss_kwargs: dict[str, Any]
    ) -> "dict[tuple[int, int], StoredOverlap]":
        """Give each stage of ``schedule`` its graphs; returns overlaps by (forward, backward)."""
        if self._overlaps is None:
            graphs: dict[int, StoredGraph] = {}
            for stage in schedule._stages:
                loaded = self._loaded[stage.stage_index]
                graphs[stage.stage_index] = StoredGraph(loaded, stage.submod)
                stage.set_graphs(graphs[stage.stage_index])
            self._overlaps = {
                (forward, backward): StoredOverlap(graphs[forward], graphs[backward])
                for forward, (backward,) in overlapped(self._schedule).items()
                if forward in graphs
            }
        return self._overlaps


class StoredGraph:
    """The programs of one stage, called with what GraphPP's runtime keeps for it."""

    def __init__(self, stage: LoadedStage, module: nn.Module) -> None:
        """``module`` has its weights and fits the stage's record."""
        self.programs = stage.programs
        self._index = stage.record.index
        self._keywords = {item.name for item in stage.record.keywords}
        records = stage.record.programs
        parameters = dict(module.named_parameters(remove_duplicate=False))
        self._trained = {name: p for name, p in parameters.items() if p.requires_grad}
        positions = {
            "parameter": _positions(parameters),
            "buffer": _positions(dict(module.named_buffers(remove_duplicate=False))),
        }
        self._forward_inputs = [_source(value, positions) for value in records["forward"].inputs]
        outputs = records["forward"].outputs
        self._outputs = _of_kind(outputs, "output")
        self._saved = _of_kind(outputs, "saved")
        self._backward_inputs: dict[Role, list[tuple[bool, int]]] = {}
        self._input_gradients: dict[Role, list[int]] = {}
        self._weight_gradients: dict[Role, list[int]] = {}
        self._deferred: list[int] = []
        self.backward_count = 0
        for role in ("backward", "backward_input", "backward_weight"):
            if role in records:
                self._add_backward(role, records[role].inputs, records[role].outputs)

    def _add_backward(self, role: Role, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self._backward_inputs[role] = [(v.kind == "tangent", int(v.name)) for v in inputs]
        self._input_gradients[role] = _of_kind(outputs, "argument_gradient")
        by_name = {v.name: i for i, v in enumerate(outputs) if v.kind == "parameter_gradient"}
        self._weight_gradients[role] = [by_name[name] for name in self._trained if name in by_name]
        if role == "backward":
            self.backward_count = len(outputs)
        if role == "backward_input":
            self._deferred = _of_kind(outputs, "deferred")

    @property
    def supports_backward_input_weight_split(self) -> bool:
        """Whether the two parts of a backward are programs of their own."""
        return "backward_input" in self.programs

    @property
    def num_unsharded_param_grad_values(self) -> int:
        """How many gradients GraphPP's runtime adds up over microbatches."""
        return len(self._trained)

    def unshard_params(
        self, flat_param_values: list[Any], *, runtime_validate: bool = False
    ) -> list[Any]:
        """Return the local tensors of the parameters, without the meshes between them."""
        return [value for value in flat_param_values if isinstance(value, torch.Tensor)]

    def forward_values(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        loss_kwargs: dict[str, Any],
        parameters: Tensors,
        buffers: list[Any],
    ) -> list[Any]:
        """Return the inputs of the forward program in order.

        Raises:
            StaleBuildError: PPC104 for other keyword inputs than the stage was traced with.
        """
        if kwargs.keys() != self._keywords:
            raise StaleBuildError(
                "PPC104",
                "a stage was called with other keyword inputs than it was traced with",
                where=Where(stage=self._index),
                expected=", ".join(sorted(self._keywords)) or "none",
                found=", ".join(sorted(kwargs)) or "none",
                hint="build with the inputs that training passes",
            )
        local = [value for value in buffers if isinstance(value, torch.Tensor)]
        sources: dict[str, Any] = {
            "parameter": parameters,
            "buffer": local,
            "argument": args,
            "keyword": kwargs,
            "loss_argument": (None, target, *map(loss_kwargs.get, LOSS_KEYWORDS)),
        }
        return [sources[kind][key] for kind, key in self._forward_inputs]

    def forward_results(self, outputs: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """Return what the stage returns, and what its backward takes; the rest was for effect."""
        result = tuple(outputs[i] for i in self._outputs)
        saved = tuple(outputs[i] for i in self._saved)
        return (result[0] if len(result) == 1 else result), saved

    def forward(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        loss_kwargs: dict[str, Any],
        *,
        unsharded_param_values: list[Any],
        flat_buffer_values: list[Any],
        runtime_validate: bool = False,
    ) -> tuple[Any, tuple[Any, ...]]:
        """Run one microbatch's forward; returns the stage's output and the saved values."""
        values = self.forward_values(
            args, kwargs, target, loss_kwargs, unsharded_param_values, flat_buffer_values
        )
        return self.forward_results(self.run("forward", values))

    def backward_values(
        self, role: Role, saved: tuple[Any, ...], gradients: tuple[Any, ...]
    ) -> list[Any]:
        """Return the inputs of a backward program in order."""
        return [
            (gradients if is_gradient else saved)[i]
            for is_gradient, i in self._backward_inputs[role]
        ]

    def backward_results(self, role: Role, outputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the gradients of the stage's inputs and of its parameters."""
        return (
            [outputs[i] for i in self._input_gradients[role]],
            [outputs[i] for i in self._weight_gradients[role]],
        )

    def full_backward(
        self,
        stage_output: tuple[Any, ...],
        saved_values_for_backward: tuple[Any, ...],
        output_grads_from_next: tuple[Any, ...],
        *,
        runtime_validate: bool = False,
    ) -> tuple[list[Any], list[Any]]:
        """Run one microbatch's backward; returns gradients of inputs and of parameters."""
        values = self.backward_values("backward", saved_values_for_backward, output_grads_from_next)
        return self.backward_results("backward", self.run("backward", values))

    def backward_input(
        self,
        stage_output: tuple[Any, ...],
        saved_values_for_backward: tuple[Any, ...],
        output_grads_from_next: tuple[Any, ...],
        *,
        runtime_validate: bool = False,
    ) -> tuple[list[Any], tuple[Any, ...]]:
        """Run the part for the inputs; returns their gradients and what the other part takes."""
        role: Role = "backward_input"
        values = self.backward_values(role, saved_values_for_backward, output_grads_from_next)
        outputs = self.run(role, values)
        gradients, _ = self.backward_results(role, outputs)
        return gradients, tuple(outputs[i] for i in self._deferred)

    def backward_weight(self, saved_values_for_backward_weight: tuple[Any, ...]) -> list[Any]:
        """Run the part for the weights; returns the parameters' gradients."""
        values = self.backward_values("backward_weight", saved_values_for_backward_weight, ())
        return self.backward_results("backward_weight", self.run("backward_weight", values))[1]

    def reduce_grads(
        self, unsharded_param_grads: list[Any], *, runtime_validate: bool = False
    ) -> list[Any]:
        """Return the gradients as they are: parameters are on one rank each."""
        return list(unsharded_param_grads)

    def param_grads_for_accumulation(self, sharded_param_grads: list[Any]) -> list[Any]:
        """Return the gradients distributed as their parameters are."""
        pairs = zip(self._trained.values(), sharded_param_grads, strict=True)
        return [_distributed(gradient, parameter) for parameter, gradient in pairs]

    def run(self, role: Role, values: list[Any]) -> Sequence[Any]:
        """Run a program; ``values`` is emptied.

        Raises:
            PrecompileError: PPC105 if the build has no program of this role.
        """
        program = self.programs.get(role)
        if program is None:
            raise PrecompileError(
                "PPC105",
                f"stage {self._index} has no {role} program",
                where=Where(stage=self._index, program=role),
                expected=f"a {role} program, which the schedule runs",
                found=", ".join(self.programs),
                hint="build again with the job's schedule",
            )
        with torch.no_grad():
            return program(values)


class StoredOverlap:
    """The program that is one stage's forward and another one's backward."""

    def __init__(self, forward: StoredGraph, backward: StoredGraph) -> None:
        """Both are stages of this rank."""
        self._forward = forward
        self._backward = backward

    def forward_backward(
        self,
        *,
        backward_stage_output: tuple[Any, ...],
        backward_saved_values_for_backward: tuple[Any, ...],
        output_grads_from_next: tuple[Any, ...],
        forward_args: tuple[Any, ...],
        forward_kwargs: dict[str, Any],
        forward_target: Any,
        forward_loss_kwargs: dict[str, Any],
        forward_unsharded_param_values: list[Any],
        forward_flat_buffer_values: list[Any],
        runtime_validate: bool = False,
    ) -> tuple[list[Any], list[Any], Any, tuple[Any, ...]]:
        """Run both; returns what :meth:`StoredGraph.full_backward` and ``forward`` return."""
        backward = self._backward.backward_values(
            "backward", backward_saved_values_for_backward, output_grads_from_next
        )
        forward = self._forward.forward_values(
            forward_args,
            forward_kwargs,
            forward_target,
            forward_loss_kwargs,
            forward_unsharded_param_values,
            forward_flat_buffer_values,
        )
        outputs = self._forward.run("overlap", [*backward, *forward])
        count = self._backward.backward_count
        of_inputs, of_parameters = self._backward.backward_results("backward", outputs[:count])
        result, saved = self._forward.forward_results(outputs[count:])
        return of_inputs, of_parameters, result, saved


def _positions(items: Mapping[str, Any]) -> dict[str, int]:
    return {name: position for position, name in enumerate(items)}


def _source(value: Value, positions: Mapping[str, Mapping[str, int]]) -> tuple[str, int | str]:
    """Return where a forward's input is found: among values of its kind, at a key."""
    if value.kind in positions:
        return value.kind, positions[value.kind][value.name]
    return value.kind, value.name if value.kind == "keyword" else int(value.name)


def _of_kind(values: Sequence[Value], kind: Kind) -> list[int]:
    return [position for position, value in enumerate(values) if value.kind == kind]


def _distributed(gradient: Any, parameter: nn.Parameter) -> Any:
    if gradient is None or not isinstance(parameter, DTensor):
        return gradient
    return DTensor.from_local(
        gradient,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
