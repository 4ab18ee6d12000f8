"""Trace a module into a forward and a backward program with named inputs and outputs."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx, nn
from torch._functorch._aot_autograd import descriptors as d

from pp_precompile.contract.errors import CompileError, Where
from pp_precompile.contract.program import Value
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.stage import private_torch
from pp_precompile.stage.boundary import LocalBoundary, Meshes
from pp_precompile.stage.collectives import drop_unused_collectives
from pp_precompile.stage.constants import inline_constants
from pp_precompile.stage.coordinate import coordinate_group, coordinates_as_inputs
from pp_precompile.stage.describe import describe
from pp_precompile.stage.fake_state import example, fake_state
from pp_precompile.stage.memory import NO_CHECKPOINTING, Checkpointing, tag_joint
from pp_precompile.stage.own_gradients import own_gradients
from pp_precompile.stage.portable import (
    drop_unused_inputs,
    is_data,
    logical_groups,
    use_logical_groups,
)
from pp_precompile.stage.random_numbers import distribute, marked
from pp_precompile.stage.shared_storage import passed_through
from pp_precompile.stage.traced import TracedProgram, without_unused


@dataclass(frozen=True, kw_only=True)
class TracedModule:
    """Forward and backward of one module; ``backward`` is None if nothing needs a gradient."""

    forward: TracedProgram
    backward: TracedProgram | None
    outputs: tuple[TensorSpec, ...]


def trace(
    module: nn.Module,
    arguments: tuple[NamedTensor, ...],
    keywords: tuple[NamedTensor, ...],
    *,
    device: torch.device,
    meshes: Meshes,
    where: Where,
    checkpointing: Checkpointing = NO_CHECKPOINTING,
) -> TracedModule:
    """Trace ``module`` from metadata.

    Args:
        module: a stage or a loss; its tensors may be on meta, fake or real.
        arguments: descriptions of the positional inputs, in order.
        keywords: descriptions of the keyword inputs.
        device: where the programs will run.
        meshes: the meshes that the module communicates over.
        where: names the module in errors.
        checkpointing: what the backward computes again instead of saving it.

    Raises:
        CompileError: PPC301 if the module cannot be traced, PPC304 if the result is not portable.
    """
    _check_trained(module, arguments, where)
    groups = logical_groups(meshes)
    boundary = LocalBoundary(module, arguments, meshes)
    try:
        with (
            private_torch.fake_tracing(),
            fake_state(module, device),
            coordinates_as_inputs(module, groups, device),
            boundary.local(),
            marked(),
            contextlib.ExitStack() as stack,
        ):
            args = tuple(example(item.tensor, device) for item in arguments)
            kwargs = {item.name: example(item.tensor, device) for item in keywords}
            joint = private_torch.export_joint(stack, module, args, kwargs)
            forward, backward = private_torch.partition(
                joint, partial(tag_joint, tag=checkpointing.tag), checkpointing.budget
            )
            own_gradients(backward)
    except CompileError:
        raise
    except Exception as error:
        raise CompileError(
            "PPC301",
            f"the module could not be traced: {type(error).__name__}: {error}",
            where=where,
            expected="a module that torch can trace as one graph, without data-dependent branches",
            hint="run it eagerly once to rule out a fault of the model itself",
        ) from error
    names = [*(item.name for item in arguments), *(item.name for item in keywords)]
    traced = _name_values(forward, backward, names, len(arguments), groups)
    coordinates = {v.name: n for v, n in traced.forward.input_nodes() if v.kind == "coordinate"}
    distribute(traced.forward.graph, coordinates, meshes, where)
    return replace(
        traced,
        forward=without_unused(traced.forward, "coordinate"),
        outputs=boundary.with_layouts(traced.outputs),
    )


def _check_trained(module: nn.Module, arguments: tuple[NamedTensor, ...], where: Where) -> None:
    """Schedules run a backward of every stage, so that each must have something to do in it."""
    required = (
        *(parameter.requires_grad for parameter in module.parameters()),
        *(item.tensor.requires_grad for item in arguments),
    )
    if not any(required):
        raise CompileError(
            "PPC301",
            "nothing in the stage requires a gradient",
            where=where,
            expected="a parameter that is trained, or an input from a stage that trains one",
            found=f"{len(required)} parameters and inputs without one",
            hint="put frozen layers in one stage with the first ones that are trained",
        )


def _name_values(
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    names: list[str],
    positional: int,
    groups: dict[str, str],
) -> TracedModule:
    """Name every input and output, drop what is no data, and use logical group names."""
    naming = _Naming(names, positional)
    aliases = _aliases(forward, naming)
    forward_outputs = _outputs(forward, naming.output, aliases)
    saved = {
        result.name: str(desc.idx)
        for result, desc in _results(forward)
        if isinstance(desc, d.SavedForBackwardsAOTOutput) and _is_data_result(result)
    }
    backward_outputs = _outputs(backward, naming.gradient)
    for graph in (forward, backward):
        inline_constants(graph)
        _keep_data_outputs(graph)
        drop_unused_collectives(graph)
        drop_unused_inputs(graph)
        use_logical_groups(graph, groups)
    forward_inputs = tuple(naming.input(n) for n in _placeholders(forward))
    backward_inputs = _backward_inputs(backward, saved, naming)
    return TracedModule(
        forward=TracedProgram(graph=forward, inputs=forward_inputs, outputs=forward_outputs),
        backward=TracedProgram(graph=backward, inputs=backward_inputs, outputs=backward_outputs)
        if backward_outputs
        else None,
        outputs=tuple(v.tensor for v in forward_outputs if v.kind == "output" and v.tensor),
    )


class _Naming:
    """Reads AOTAutograd's descriptors."""

    def __init__(self, names: list[str], positional: int) -> None:
        self._names = names
        self._positional = positional

    def input(self, node: fx.Node) -> Value:
        """Name an input of the forward program."""
        kind, name = self._origin(node.meta["desc"])
        return Value(kind=kind, name=name, tensor=_spec(node))  # type: ignore[arg-type]

    def output(self, desc: Any) -> tuple[str, str] | None:
        """Name an output of the forward program; None if it is no data."""
        if isinstance(desc, d.SubclassGetAttrAOTOutput):
            desc = desc.base
        if isinstance(desc, d.PlainAOTOutput):
            return "output", str(desc.idx)
        if isinstance(desc, d.InputMutationAOTOutput):
            kind, name = self._origin(desc.mutated_input)
            if kind == "buffer":
                return "buffer_update", name
        if isinstance(desc, d.SavedForBackwardsAOTOutput):
            return "saved", str(desc.idx)
        raise _unknown(desc)

    def gradient(self, desc: Any) -> tuple[str, str] | None:
        """Name an output of the backward program."""
        if isinstance(desc, d.SubclassGetAttrAOTOutput):
            desc = desc.base
        if isinstance(desc, d.GradAOTOutput):
            kind, name = self._origin(desc.grad_of)
            return ("parameter_gradient" if kind == "parameter" else "argument_gradient"), name
        raise _unknown(desc)

    def _origin(self, desc: Any) -> tuple[str, str]:
        if isinstance(desc, d.SubclassGetAttrAOTInput):
            return self._origin(desc.base)
        if isinstance(desc, d.ParamAOTInput):
            return "parameter", desc.target
        if isinstance(desc, d.BufferAOTInput):
            dimension = coordinate_group(desc.target)
            return ("buffer", desc.target) if dimension is None else ("coordinate", dimension)
        if isinstance(desc, d.PlainAOTInput):
            kind = "argument" if desc.idx < self._positional else "keyword"
            return kind, self._names[desc.idx]
        if isinstance(desc, d.TangentAOTInput):
            output = desc.output
            while isinstance(output, d.SubclassGetAttrAOTOutput):
                output = output.base
            if isinstance(output, d.PlainAOTOutput):
                return "tangent", str(output.idx)
        raise _unknown(desc)


def _unknown(desc: Any) -> CompileError:
    return CompileError(
        "PPC304",
        "the traced program has an input or output that cannot be bound by name",
        expected="parameters, buffers, arguments, outputs, saved values and gradients",
        found=desc,
        hint="report this model: random number state and the like are not supported yet",
    )


def _placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _results(graph: fx.GraphModule) -> list[tuple[Any, Any]]:
    node = graph.graph.output_node()
    return list(zip(node.args[0], node.meta["desc"], strict=True))


def _spec(node: fx.Node) -> TensorSpec | None:
    value = node.meta.get("val")
    return describe(value) if isinstance(value, torch.Tensor) else None


def _is_data_result(result: Any) -> bool:
    return isinstance(result, fx.Node) and is_data(result.meta.get("val"))


def _outputs(
    graph: fx.GraphModule, name_of: Any, aliases: Mapping[fx.Node, str] | None = None
) -> tuple[Value, ...]:
    values = []
    for result, desc in _results(graph):
        if not _is_data_result(result):
            continue
        kind, name = name_of(desc)
        alias = (aliases or {}).get(result) if kind == "saved" else None
        values.append(Value(kind=kind, name=name, tensor=_spec(result), alias=alias))
    return tuple(values)


def _keep_data_outputs(graph: fx.GraphModule) -> None:
    node = graph.graph.output_node()
    kept = [(r, desc) for r, desc in _results(graph) if _is_data_result(r)]
    node.args = (tuple(r for r, _ in kept),)
    node.meta["desc"] = [desc for _, desc in kept]


def _aliases(forward: fx.GraphModule, naming: _Naming) -> dict[fx.Node, str]:
    """Map every node that only views an input to that input's kind and name."""
    inputs = {n: naming.input(n) for n in _placeholders(forward) if is_data(n.meta.get("val"))}
    return passed_through(forward, {node: f"{v.kind}:{v.name}" for node, v in inputs.items()})


def _backward_inputs(
    backward: fx.GraphModule, saved: Mapping[str, str], naming: _Naming
) -> tuple[Value, ...]:
    """Name the backward's inputs.

    torch puts what it saved in another order than it returned it (integers come first), but the
    nodes keep their names, which ``saved`` maps to the names of the saved values.
    """
    inputs: list[Value] = []
    for node in _placeholders(backward):
        desc = node.meta.get("desc")
        if isinstance(desc, d.TangentAOTInput):
            kind, name = naming._origin(desc)
            inputs.append(Value(kind=kind, name=name, tensor=_spec(node)))  # type: ignore[arg-type]
        else:
            inputs.append(Value(kind="saved", name=saved.get(node.name, ""), tensor=_spec(node)))
    names = [value.name for value in inputs if value.kind == "saved"]
    if sorted(names) != sorted(saved.values()):
        raise CompileError(
            "PPC304",
            "forward and backward disagree on the saved values",
            expected=f"the saved values {sorted(saved)}",
            found=f"the inputs {[node.name for node in _placeholders(backward)]}",
            hint="report this with the version of torch",
        )
    return tuple(inputs)
