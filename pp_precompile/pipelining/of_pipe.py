"""Stages that ``torch.distributed.pipelining.pipeline`` cut out of a traced module."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.distributed.pipelining import Pipe

from pp_precompile.contract.errors import UsageError, Where
from pp_precompile.pipelining.part import NamedStage, Part, described


def parts(pipe: Pipe, *, keywords: Sequence[str], device: torch.device) -> list[Part]:
    """Return all stages of ``pipe``.

    Args:
        pipe: from ``pipeline()``; the shapes of one microbatch are those it was traced with.
        keywords: names of the inputs that will be given by keyword; the others are positional.
        device: where the stages will run.

    Raises:
        UsageError: PPC002 for what does not go from each stage to the next one.
    """
    _check_untied(pipe)
    stages = [node for node in pipe.info().graph.nodes if node.op == "call_module"]
    given = [_given(pipe, index, node, stages) for index, node in enumerate(stages)]
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
        _part(pipe, index, given[index], by_keyword, device=device) for index in range(len(stages))
    ]


_Given = dict[str, tuple[int | None, Any]]
"""Inputs of a stage by placeholder: which output of the stage before, or None for an input of the
whole pipeline; and an example."""


def _given(pipe: Pipe, index: int, node: fx.Node, stages: Sequence[fx.Node]) -> _Given:
    placeholders = [n for n in _graph(pipe, index).nodes if n.op == "placeholder"]
    return {
        placeholder.name: (_source(source, index, stages), placeholder.meta["val"])
        for placeholder, source in zip(placeholders, node.args, strict=True)
    }


def _graph(pipe: Pipe, index: int) -> fx.Graph:
    graph: fx.Graph = pipe.get_stage_module(index).graph
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
    pipe: Pipe, index: int, given: _Given, by_keyword: Mapping[str, Any], *, device: torch.device
) -> Part:
    takes: list[int | str] = []
    inputs: dict[str, Any] = {}
    if index > 0:
        output = _graph(pipe, index - 1).output_node()
        values = fx.node.map_arg(output.args, lambda n: n.meta["val"])
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
    module = pipe.get_stage_module(index)
    return Part(
        index=index,
        module=module,
        named=NamedStage(index, module, takes=takes, keywords=()),
        arguments=described(index, inputs, device=device, requires_grad=index > 0),
        keywords=described(index, by_keyword, device=device, requires_grad=False),
    )


def _check_result(pipe: Pipe, stages: Sequence[fx.Node]) -> None:
    """The pipeline's result has to come from the last stage, whose rank computes the loss."""
    early: list[int] = []

    def look(node: fx.Node) -> None:
        while node.target is operator.getitem:
            node = node.args[0]
        if node is not stages[-1]:
            early.append(stages.index(node) if node in stages else -1)

    fx.node.map_arg(pipe.info().graph.output_node().args, look)
    if early:
        raise UsageError(
            "PPC002",
            "the pipeline returns a value that is not one of the last stage's",
            where=Where(stage=max(early) if max(early) >= 0 else None),
            expected=f"values of stage {len(stages) - 1}",
            found=f"a value of stage {max(early)}" if max(early) >= 0 else "an input",
            hint="pass it through the stages behind, or leave it out",
        )


def _check_untied(pipe: Pipe) -> None:
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
