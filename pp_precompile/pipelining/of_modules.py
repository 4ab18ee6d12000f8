"""Stages that a user cut by hand: a chain of modules."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from pp_precompile.contract.errors import CompileError, UsageError, Where
from pp_precompile.pipelining.part import NamedStage, Part, described
from pp_precompile.pipelining.whole import check_whole
from pp_precompile.stage import private_torch
from pp_precompile.stage.fake_state import example, fake_state


def chain(
    modules: Sequence[nn.Module],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    device: torch.device,
) -> list[Part]:
    """Return all stages, each of which takes what the one before returns.

    What lies between two stages is found out by running them on fake tensors.

    Args:
        modules: every stage's module, in order.
        args: positional inputs of the first one, for one microbatch.
        kwargs: keyword inputs of all of them, for one microbatch.
        device: where the stages will run.

    Raises:
        UsageError: PPC002 for what stages cannot pass on, or a parameter in two of them.
        CompileError: PPC301 if a module does not run.
    """
    _check_untied(modules)
    parts: list[Part] = []
    for index, module in enumerate(modules):
        parts.append(part(index, module, args, kwargs, device=device))
        args = _outputs(parts[-1], device)
    return parts


def part(
    index: int,
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    device: torch.device,
) -> Part:
    """Return one stage from example inputs of one microbatch.

    Raises:
        UsageError: PPC002 for an input that is no tensor, or a module that is not whole.
    """
    check_whole(index, module)
    named = {str(position): value for position, value in enumerate(args)}
    return Part(
        index=index,
        module=module,
        named=NamedStage(index, module),
        arguments=described(index, named, device=device, requires_grad=index > 0),
        keywords=described(index, kwargs, device=device, requires_grad=False),
    )


def _outputs(part: Part, device: torch.device) -> list[torch.Tensor]:
    with private_torch.fake_tracing(), fake_state(part.named, device), torch.no_grad():
        args = [example(item.tensor, device) for item in part.arguments]
        kwargs = {item.name: example(item.tensor, device) for item in part.keywords}
        try:
            result = part.named(*args, **kwargs)
        except Exception as error:
            raise CompileError(
                "PPC301",
                f"the module does not run on what it is given: {type(error).__name__}: {error}",
                where=Where(stage=part.index),
                expected="a module that takes what the stage before returns",
                found=", ".join(str(item.tensor) for item in part.arguments),
                hint="run all modules one after the other on one microbatch",
            ) from error
        outputs = result if isinstance(result, tuple) else (result,)
        for output in outputs:
            if not isinstance(output, torch.Tensor):
                raise UsageError(
                    "PPC002",
                    "a stage returns something that is no tensor",
                    where=Where(stage=part.index),
                    expected="a tensor, or a tuple of tensors",
                    found=type(output).__name__,
                    hint="return tensors, which can be sent to the next stage",
                )
        return [torch.empty_like(output, device="meta") for output in outputs]


def _check_untied(modules: Sequence[nn.Module]) -> None:
    owners: dict[int, tuple[int, str]] = {}
    for index, module in enumerate(modules):
        for name, parameter in module.named_parameters(remove_duplicate=False):
            other, first = owners.setdefault(id(parameter), (index, name))
            if other != index:
                raise UsageError(
                    "PPC002",
                    "two stages share a parameter",
                    where=Where(stage=index, field=name),
                    expected="each parameter in one stage: its gradients are not added up",
                    found=f"the one that stage {other} calls {first}",
                    hint="untie shared weights, or keep their modules in one stage",
                )
