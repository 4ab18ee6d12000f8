"""One stage as it is compiled: a module under a name of its own, and what it is called with."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef

from pp_precompile.contract.errors import UsageError, Where
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.stage.describe import describe


@dataclass(frozen=True, kw_only=True)
class Part:
    """A stage of a pipeline.

    ``module`` is the user's, ``named`` the same behind a module whose parameters have names that no
    other stage's have. ``arguments`` are all outputs of the stage before, or the inputs of the
    pipeline; ``keywords`` are the same for all stages, whoever takes them.
    """

    index: int
    module: nn.Module
    named: "NamedStage"
    arguments: tuple[NamedTensor, ...]
    keywords: tuple[NamedTensor, ...]


class NamedStage(nn.Module):
    """Calls a stage's module with those inputs that it takes.

    Its parameters are called ``stage3.layers.0.weight``: modules of different stages often have
    parameters of the same name, and a build knows parameters by name.
    """

    def __init__(
        self,
        index: int,
        module: nn.Module,
        *,
        takes: Sequence[int | str] | None = None,
        keywords: Sequence[str] | None = None,
    ) -> None:
        """Wrap stage ``index``.

        Args:
            index: of the stage.
            module: the stage's module.
            takes: for each positional input of ``module``, the position of a given one, or the name
                of a keyword input; all given ones in order if None.
            keywords: names of the keyword inputs that ``module`` takes as such; all if None.
        """
        super().__init__()
        self.add_module(self.module_name(index), module)
        self._name, self._takes, self._keywords = self.module_name(index), takes, keywords

    @staticmethod
    def module_name(index: int) -> str:
        """Return what a stage's module is called in a build."""
        return f"stage{index}"

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        """Return what the module returns; several tensors as a tuple."""
        taken = list(args)
        if self._takes is not None:
            taken = [args[t] if isinstance(t, int) else kwargs[t] for t in self._takes]
        names = kwargs if self._keywords is None else self._keywords
        result = getattr(self, self._name)(*taken, **{name: kwargs[name] for name in names})
        inputs = {_memory(value) for value in (*args, *kwargs.values())}
        if isinstance(result, tuple | list):
            return tuple(_apart(value, inputs) for value in result)
        return _apart(result, inputs)


def _apart(value: Any, inputs: Container[object]) -> Any:
    """Return ``value`` in memory of its own if it is an input that is passed on, or a view of one.

    torch leaves results that are inputs out of the graph, and so their gradients.
    """
    passed_on = isinstance(value, torch.Tensor) and _memory(value) in inputs
    return value.clone() if passed_on else value


def _memory(tensor: torch.Tensor) -> object:
    return StorageWeakRef(tensor.untyped_storage())


def described(
    index: int,
    inputs: Mapping[str, Any],
    *,
    device: torch.device,
    requires_grad: bool,
) -> tuple[NamedTensor, ...]:
    """Describe example inputs of one microbatch by name.

    Args:
        index: of the stage, for errors.
        inputs: tensors, on any device (meta is enough).
        device: where the stage will run.
        requires_grad: whether floating-point inputs come from a stage before.

    Raises:
        UsageError: PPC002 for an input that is no tensor, or a DTensor.
    """
    specs = []
    for name, value in inputs.items():
        if isinstance(value, DTensor):
            raise UsageError(
                "PPC002",
                f"input {name} of a stage is a DTensor",
                where=Where(stage=index, field=name),
                expected="tensors that are whole on the stage's rank",
                found=f"{list(value.placements)} on {value.device_mesh}",
                hint="train tensor-parallel and sharded stages through torchtitan's front end",
            )
        if not isinstance(value, torch.Tensor):
            raise UsageError(
                "PPC002",
                f"input {name} of a stage is no tensor",
                where=Where(stage=index, field=name),
                expected="tensors, which a schedule can cut into microbatches",
                found=type(value).__name__,
                hint="set it in the module before the stage is made, or make it a tensor",
            )
        wanted = requires_grad and value.is_floating_point()
        example = value.detach().requires_grad_(wanted)
        specs.append(NamedTensor(name=name, tensor=describe(example, device=device.type)))
    return tuple(specs)
