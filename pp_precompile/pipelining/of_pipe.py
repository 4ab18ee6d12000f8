"""Stages that a tracer cut out of a module: torch's ``pipeline()``, or ``torchpippy`` before it.

Both make a ``Pipe``, whose ``split_gm`` calls one submodule a stage.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import torch
from torch import fx, nn
from torch.distributed.pipelining import Pipe

from pp_precompile.contract.errors import UsageError, Where
from pp_precompile.pipelining.part import NamedStage, Part, described
from pp_precompile.pipelining.whole import check_whole


class AnyPipe(Protocol):
    """What the two have in common."""

    split_gm: fx.GraphModule
    replicated_params: list[dict[str, str]]


def is_pipe(stages: object) -> TypeGuard[AnyPipe]:
    """Tell whether ``stages`` is a ``Pipe`` of torch, or of the archived package ``torchpippy``."""
    names = {f"{base.__module__}.{base.__qualname__}" for base in type(stages).__mro__}
    return isinstance(stages, Pipe) or "pippy.IR.Pipe" in names


def number_of_stages(pipe: AnyPipe) -> int:
    """Return how many stages ``pipe`` has."""
    return len(_calls(pipe))


def _calls(pipe: AnyPipe) -> list[fx.Node]:
    return [node for node in pipe.split_gm.graph.nodes if node.op == "call_module"]


def parts(pipe: AnyPipe, *, keywords: Sequence[str], device: torch.device) -> list[Part]:
    """Return all stages of ``pipe``.

    Args:
        pipe: the shapes of one microbatch are those it was traced with.
        keywords: names of the inputs that will be given by keyword; the others are positional.
        device: where the stages will run.

    Raises:
        UsageError: PPC002 for what does not go from each stage to the next one, and for modules
            that are not whole.
    """
    _check_untied(pipe)
    stages = _calls(pipe)
    modules = [pipe.split_gm.get_submodule(str(node.target)) for node in stages]
    for index, module in enumerate(modules):
        check_whole(index, module)
    given = [
        _given(module, index, node, stages)
        for index, (module, node) in enumerate(zip(modules, stages, strict=True))
    ]
    _check_result(pipe, stages)
    by_keyword = {
        name: value
        for inputs in given
        for name, (source, value) in inputs.items()
        if source is None and name in keywords
    }
    unknown = [name for name in keywords if name not in by_keyword]
    if unknown:
        raise UsageError(
            "PPC002",
            "the pipeline has no such inputs",
            expected=f"some of {sorted(n for i in given for n, (s, _) in i.items() if s is None)}",
            found=f"keywords {unknown}",
            hint="name inputs as the traced module does",
        )
    return [
        _part(modules, index, given[index], by_keyword, device=device)
        for index in range(len(stages))
    ]


_Given = dict[str, tuple[int | None, Any]]
"""Inputs of a stage by placeholder: which output of the stage before, or None for an input of the
whole pipeline; and an example."""


def _given(module: nn.Module, index: int, node: fx.Node, stages: Sequence[fx.Node]) -> _Given:
    placeholders = [n for n in _graph(module).nodes if n.op == "placeholder"]
    return {
        placeholder.name: (_source(source, index, stages), _value(placeholder))
        for placeholder, source in zip(placeholders, node.args, strict=True)
    }


def _value(node: fx.Node) -> Any:
    """Return what a node returned while it was traced; the older package keeps it elsewhere."""
    return node.meta["val"] if "val" in node.meta else node.meta["example_value"]


def _graph(module: nn.Module) -> fx.Graph:
    graph: fx.Graph = module.graph
    return graph


def _source(node: Any, index: int, stages: Sequence[fx.Node]) -> int | None:
    """Return which output of stage ``index - 1`` a value is; None for an input of the pipeline."""
    if node.op == "placeholder":
        return None
    output = 0
    if node.target is operator.getitem:
        node, output = node.args
    source = stages.index(node)
    if source != index - 1:
        raise UsageError(
            "PPC002",
            f"stage {index} takes a value from stage {source}, which is not the one before it",
            where=Where(stage=index),
            expected="values that go from each stage to the next one",
            found=f"a connection that skips {index - source - 1} stage(s)",
            hint="pass the value through the stages between: return it from each of them",
        )
    return output


def _part(
    modules: Sequence[nn.Module],
    index: int,
    given: _Given,
    by_keyword: Mapping[str, Any],
    *,
    device: torch.device,
) -> Part:
    takes: list[int | str] = []
    inputs: dict[str, Any] = {}
    if index > 0:
        output = _graph(modules[index - 1]).output_node()
        values = fx.node.map_arg(output.args, _value)
        flat, _ = torch.utils._pytree.tree_flatten(values)
        inputs = {str(position): value for position, value in enumerate(flat)}
    for name, (source, value) in given.items():
        if source is not None:
            takes.append(source)
        elif name in by_keyword:
            takes.append(name)
        elif index == 0:
            takes.append(len(inputs))
            inputs[str(len(inputs))] = value
        else:
            raise UsageError(
                "PPC002",
                f"stage {index} takes input {name} of the pipeline, which only the first stage is "
                "given by position",
                where=Where(stage=index, field=name),
                expected=f"{name} among keywords, which every rank passes",
                found=f"keywords {sorted(by_keyword)}",
                hint=f"pass {name} to schedule.step() by keyword, and name it in keywords=",
            )
    return Part(
        index=index,
        module=modules[index],
        named=NamedStage(index, modules[index], takes=takes, keywords=()),
        arguments=described(index, inputs, device=device, requires_grad=index > 0),
        keywords=described(index, by_keyword, device=device, requires_grad=False),
    )


def _check_result(pipe: AnyPipe, stages: Sequence[fx.Node]) -> None:
    """The pipeline's result has to come from the last stage, whose rank computes the loss."""
    early: list[int] = []

    def look(node: fx.Node) -> None:
        while node.target is operator.getitem:
            node = node.args[0]
        if node is not stages[-1]:
            early.append(stages.index(node) if node in stages else -1)

    fx.node.map_arg(pipe.split_gm.graph.output_node().args, look)
    if early:
        raise UsageError(
            "PPC002",
            "the pipeline returns a value that is not one of the last stage's",
            where=Where(stage=max(early) if max(early) >= 0 else None),
            expected=f"values of stage {len(stages) - 1}",
            found=f"a value of stage {max(early)}" if max(early) >= 0 else "an input",
            hint="pass it through the stages behind, or leave it out",
        )


def _check_untied(pipe: AnyPipe) -> None:
    shared = [names for names in pipe.replicated_params if len(names) > 1]
    if shared:
        name, where = next(iter(shared[0].values())), list(shared[0])
        raise UsageError(
            "PPC002",
            "two stages share a parameter",
            where=Where(field=name),
            expected="each parameter in one stage: its gradients are not added up",
            found=f"{name} in {', '.join(where)}",
            hint="untie shared weights, or keep their modules in one stage",
        )
