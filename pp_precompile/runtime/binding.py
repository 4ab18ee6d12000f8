"""Bind a program's inputs to the live module by name, after checking that the module fits."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pp_precompile.contract.errors import StaleBuildError, Where
from pp_precompile.contract.program import Value
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.stage.describe import describe_state, local_tensor
from pp_precompile.stage.portable import coordinate

Arguments = Sequence[torch.Tensor]
Unsharded = Mapping[str, torch.Tensor]
Getter = Callable[[Arguments, Unsharded], torch.Tensor]
"""Returns one input of a program.

It is given the call's positional and keyword inputs in order, and the gathered parameters by FQN.
"""


class Binding:
    """The live parameters and buffers of a stage, by FQN."""

    def __init__(self, module: nn.Module, record: StageRecord) -> None:
        """Check ``module`` against ``record`` and keep its tensors.

        Raises:
            StaleBuildError: PPC103 naming the first parameter or buffer that differs.
        """
        check_module(module, record)
        self.parameters: dict[str, nn.Parameter] = dict(
            module.named_parameters(remove_duplicate=False)
        )
        self.buffers: dict[str, torch.Tensor] = dict(module.named_buffers(remove_duplicate=False))

    def getters(self, inputs: Sequence[Value], argument_names: Sequence[str]) -> list[Getter]:
        """Return one getter for every input of a program that reads the module and arguments."""
        return [self._getter(value, argument_names) for value in inputs]

    def _getter(self, value: Value, argument_names: Sequence[str]) -> Getter:
        if value.kind == "parameter":
            parameter = self.parameters[value.name]
            if isinstance(parameter, DTensor):
                return lambda *_: parameter._local_tensor
            return lambda *_: parameter.detach()
        if value.kind == "buffer":
            buffer = self.buffers[value.name]
            return lambda *_: local_tensor(buffer)
        if value.kind == "coordinate":
            number = torch.tensor(
                coordinate(value.name), device=value.tensor and value.tensor.device
            )
            return lambda *_: number
        if value.kind == "unsharded":
            return lambda _, unsharded: unsharded[value.name]
        position = argument_names.index(value.name)
        return lambda arguments, _: arguments[position]


def check_module(module: nn.Module, record: StageRecord, *, device: str | None = None) -> None:
    """Compare every parameter and buffer of ``module`` with the stage's record.

    ``device`` stands for the device type of a module that is still on meta.

    Raises:
        StaleBuildError: PPC103 naming the first one that differs.
    """
    parameters, buffers = describe_state(module, device=device)
    _compare("parameter", record.parameters, parameters, record.index)
    _compare("buffer", record.buffers, buffers, record.index)


def accumulate(pairs: Sequence[tuple[nn.Parameter, torch.Tensor]]) -> None:
    """Add local gradients to the ``.grad`` of their parameters, with the parameters' placements.

    A first gradient becomes ``.grad`` itself, so it must own its memory. The others are added in
    one call, since one for each parameter costs more than a small stage computes.
    """
    sums, terms = [], []
    for parameter, gradient in pairs:
        if parameter.grad is None:
            parameter.grad = _as_grad(parameter, gradient)
        else:
            sums.append(local_tensor(parameter.grad))
            terms.append(gradient)
    if sums:
        torch._foreach_add_(sums, terms)


def _as_grad(parameter: nn.Parameter, gradient: torch.Tensor) -> torch.Tensor:
    local = local_tensor(parameter)
    if gradient.stride() != local.stride():
        gradient = torch.empty_like(local).copy_(gradient)
    if not isinstance(parameter, DTensor):
        return gradient
    return DTensor.from_local(
        gradient,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _compare(
    kind: str, stored: Sequence[NamedTensor], live: Sequence[NamedTensor], stage: int
) -> None:
    if stored == live:
        return
    expected = {item.name: item.tensor for item in stored}
    found = {item.name: item.tensor for item in live}
    name = next(
        name
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    )
    raise StaleBuildError(
        "PPC103",
        f"the live module's {kind} {name} is not the one that the stage was compiled for",
        where=Where(stage=stage, field=name),
        expected=_text(expected.get(name)),
        found=_text(found.get(name)),
        hint="build again for this model and parallelism",
    )


def _text(tensor: object) -> str:
    return "none of this name" if tensor is None else repr(tensor)
