"""Trace a loss with its gradients into one program.

A loss is a scalar whose gradient is taken at once, so that value and gradients are one program:
nothing has to be saved between two, and losses that run their own backward inside (torchtitan's
chunked loss does, chunk by chunk) trace like any other.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.distributed.tensor import DTensor
from torch.fx.experimental.proxy_tensor import make_fx

from pp_precompile.contract.errors import CompileError, PrecompileError, Where
from pp_precompile.contract.program import Value
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.stage import private_torch
from pp_precompile.stage.boundary import Meshes, distributed
from pp_precompile.stage.collectives import drop_unused_collectives
from pp_precompile.stage.constants import inline_constants
from pp_precompile.stage.coordinate import (
    coordinate_buffers,
    coordinate_group,
    coordinates_as_inputs,
)
from pp_precompile.stage.describe import describe, local_tensor
from pp_precompile.stage.fake_state import example, fake_state
from pp_precompile.stage.own_gradients import own_gradients
from pp_precompile.stage.portable import logical_groups, use_logical_groups
from pp_precompile.stage.traced import TracedProgram, without_unused


def trace_loss(
    module: nn.Module,
    arguments: tuple[NamedTensor, ...],
    *,
    device: torch.device,
    meshes: Meshes,
    where: Where,
) -> TracedProgram:
    """Trace ``module(*arguments)``, a scalar, and its gradients.

    The program's inputs are the module's parameters by sorted FQN, the arguments, and the rank's
    coordinates that it uses; its outputs the loss, the gradient of each argument that requires one,
    and of each parameter. All are local tensors.

    Raises:
        CompileError: PPC301 if the loss cannot be traced, PPC304 if the result is not portable.
    """
    groups = logical_groups(meshes)
    try:
        with (
            private_torch.fake_tracing(),
            fake_state(module, device),
            coordinates_as_inputs(module, groups, device),
        ):
            graph, inputs, outputs = _trace(module, arguments, device, meshes)
    except PrecompileError:
        raise
    except Exception as error:
        raise CompileError(
            "PPC301",
            f"the loss could not be traced: {type(error).__name__}: {error}",
            where=where,
            expected="a loss of (prediction, labels, global_valid_tokens)",
            hint="use torchtitan's cross-entropy or chunked loss",
        ) from error
    inline_constants(graph)
    drop_unused_collectives(graph)
    use_logical_groups(graph, groups)
    return without_unused(TracedProgram(graph=graph, inputs=inputs, outputs=outputs), "coordinate")


def _trace(
    module: nn.Module, arguments: tuple[NamedTensor, ...], device: torch.device, meshes: Meshes
) -> tuple[fx.GraphModule, tuple[Value, ...], tuple[Value, ...]]:
    parameters = dict(sorted(module.named_parameters(remove_duplicate=False)))
    trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
    wanted = [item for item in arguments if item.tensor.requires_grad]
    examples = [local_tensor(p).detach() for p in parameters.values()]
    examples += [example(item.tensor, device).detach() for item in arguments]
    coordinates = coordinate_buffers(module)
    examples += coordinates.values()

    def loss_and_gradients(*flat: torch.Tensor) -> list[torch.Tensor]:
        state = dict(zip(parameters, flat, strict=False))
        leaves = _bind(module, parameters, state)
        rest = flat[len(parameters) :]
        args = [
            value.detach().requires_grad_(item.tensor.requires_grad)
            for value, item in zip(rest, arguments, strict=False)
        ]
        module._buffers.update(zip(coordinates, rest[len(arguments) :], strict=True))
        wrapped = [
            distributed(value, item.tensor.layout, meshes)
            for value, item in zip(args, arguments, strict=True)
        ]
        loss = module(*wrapped)
        sources: list[Any] = [a for a, i in zip(args, arguments, strict=True) if i in wanted]
        gradients = torch.autograd.grad(loss, sources + [leaves[name] for name in trained])
        return [loss.detach(), *(local_tensor(g) for g in gradients)]

    graph = make_fx(loss_and_gradients, tracing_mode="real")(*examples)
    own_gradients(graph)
    inputs = [
        *(
            Value(kind="parameter", name=name, tensor=describe(local_tensor(parameter).detach()))
            for name, parameter in parameters.items()
        ),
        *(Value(kind="argument", name=item.name, tensor=item.tensor) for item in arguments),
        *(
            Value(kind="coordinate", name=coordinate_group(name) or "", tensor=describe(zero))
            for name, zero in coordinates.items()
        ),
    ]
    names = [
        ("output", "0"),
        *(("argument_gradient", item.name) for item in wanted),
        *(("parameter_gradient", name) for name in trained),
    ]
    results = [node.meta["val"] for node in graph.graph.output_node().args[0]]
    outputs = [
        Value(kind=kind, name=name, tensor=describe(result))  # type: ignore[arg-type]
        for (kind, name), result in zip(names, results, strict=True)
    ]
    return graph, tuple(inputs), tuple(outputs)


def _bind(
    module: nn.Module, parameters: Mapping[str, nn.Parameter], state: Mapping[str, torch.Tensor]
) -> dict[str, nn.Parameter]:
    """Put the traced local tensors into the module as its parameters; returns them by FQN."""
    leaves: dict[str, nn.Parameter] = {}
    for name, parameter in parameters.items():
        value: torch.Tensor = state[name].detach()
        if isinstance(parameter, DTensor):
            value = DTensor(value, parameter._spec, requires_grad=False)
        leaves[name] = nn.Parameter(value, requires_grad=parameter.requires_grad)
        owner, _, leaf = name.rpartition(".")
        module.get_submodule(owner)._parameters[leaf] = leaves[name]
    return leaves
