"""GraphPP's graphs of a stage as programs whose inputs and outputs have names.

GraphPP binds by position, and carries device meshes along to put distributed tensors together.
Here values are named, as everywhere in this package, and meshes are left out: programs take and
return local tensors, and whoever runs them knows the live parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from pp_precompile.contract.errors import CompileError, Where
from pp_precompile.contract.program import Kind, Role, Value
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.stage.describe import describe
from pp_precompile.stage.portable import drop_unused_inputs, is_data
from pp_precompile.stage.shared_storage import passed_through, with_shared_storage
from pp_precompile.stage.traced import TracedProgram
from pp_precompile.titan import private_graph_pp
from pp_precompile.titan.private_graph_pp import Signature
from pp_precompile.titan.private_step_graph import StepGraph

Name = tuple[Kind, str] | None
"""Kind and name of a value; None for what is no data."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a stage is called with."""

    arguments: Sequence[NamedTensor]
    keywords: Sequence[NamedTensor]
    loss_arguments: Sequence[NamedTensor]
    order: Sequence[Kind] = ("argument", "keyword", "loss_argument")

    def names(self, module: nn.Module) -> Iterator[Name]:
        """Yield the name of every flat input: state of ``module`` first, then by ``order``."""
        yield from _state("parameter", module.named_parameters(remove_duplicate=False))
        yield from _state("buffer", module.named_buffers(remove_duplicate=False))
        calls: dict[Kind, Sequence[NamedTensor]] = {
            "argument": self.arguments,
            "keyword": self.keywords,
            "loss_argument": self.loss_arguments,
        }
        for kind in self.order:
            for item in calls[kind]:
                yield kind, item.name


def _state(kind: Kind, items: Iterator[tuple[str, torch.Tensor]]) -> Iterator[Name]:
    for name, tensor in items:
        yield from _parts((kind, name), len(private_graph_pp.flat_values(tensor)))


def _parts(name: Name, count: int) -> Iterator[Name]:
    """Yield the name for the local tensor, which comes first, and none for its meshes."""
    yield name
    yield from [None] * (count - 1)


def named_programs(
    graphs: Any, module: nn.Module, inputs: Inputs, where: Where
) -> dict[Role, TracedProgram]:
    """Return the programs of a stage, in place of GraphPP's own graphs (changes these).

    Raises:
        CompileError: PPC304 for a value that cannot be named, PPC301 for a parameter without a
            gradient.
    """
    modules, signature = graphs.modules, private_graph_pp.signature(graphs)
    if signature.gathers:
        raise _unnamed(where, "collectives that gather parameters or reduce gradients")
    naming = _Naming(signature, module, inputs, where)
    forward = naming.forward(modules.fw)
    programs: dict[Role, TracedProgram] = {"forward": with_shared_storage(forward)}
    if modules.bw_di is not None:
        deferred = naming.deferred(modules.bw_di)
        arguments = naming.argument_gradients
        programs["backward_input"] = naming.program(
            modules.bw_di, naming.backward_inputs, [*arguments, *deferred]
        )
        programs["backward_weight"] = naming.program(
            modules.bw_dw, deferred, naming.parameter_gradients
        )
    gradients = [*naming.parameter_gradients, *naming.argument_gradients]
    programs["backward"] = naming.program(modules.full_bw, naming.backward_inputs, gradients)
    return programs


def overlap(forward: TracedProgram, backward: TracedProgram) -> TracedProgram:
    """Return one stage's forward and another one's backward as one program."""
    return TracedProgram(
        graph=private_graph_pp.multiplex(forward.graph, backward.graph),
        inputs=(*backward.inputs, *forward.inputs),
        outputs=(*backward.outputs, *forward.outputs),
    )


def step_program(step: StepGraph, module: nn.Module, inputs: Inputs, where: Where) -> TracedProgram:
    """Return a whole step as one program, in place of graph_trainer's own graph (changes it).

    Raises:
        CompileError: PPC304 for a value that cannot be named, PPC301 for a parameter without a
            gradient.
    """
    signature = Signature(
        forward_inputs=range(len(_placeholders(step.graph))),
        outputs=1,
        saved=(),
        backward_inputs=(),
        tangents={},
        parameter_gradients=step.gradients,
        argument_gradients=(),
        gathers=False,
    )
    return _Naming(signature, module, inputs, where).step(step.graph)


class _Naming:
    """Names by position; what comes of the forward names what the others take."""

    def __init__(
        self, signature: Signature, module: nn.Module, inputs: Inputs, where: Where
    ) -> None:
        self._signature = signature
        self._inputs = list(inputs.names(module))
        self._where = where
        self._saved: dict[str, str] = {}
        trained = [
            name
            for name, parameter in module.named_parameters(remove_duplicate=False)
            if parameter.requires_grad
        ]
        given = [item.name for item in inputs.arguments if item.tensor.requires_grad]
        self.parameter_gradients = self._gradients(
            "parameter_gradient", trained, signature.parameter_gradients
        )
        self.argument_gradients = self._gradients(
            "argument_gradient", given, signature.argument_gradients
        )

    def _gradients(self, kind: Kind, names: Sequence[str], counts: Sequence[int]) -> list[Name]:
        if len(names) != len(counts):
            raise _unnamed(self._where, f"{len(counts)} values of kind {kind} for {len(names)}")
        pairs = zip(names, counts, strict=True)
        return [part for name, count in pairs for part in _parts((kind, name), count)]

    @property
    def backward_inputs(self) -> list[Name]:
        """What a backward takes: values that forward saved, and gradients of its outputs."""
        return [self._backward_input(name) for name in self._signature.backward_inputs]

    def _backward_input(self, node: str) -> Name:
        if node in self._signature.tangents:
            return "tangent", str(self._signature.tangents[node])
        return ("saved", self._saved[node]) if node in self._saved else None

    def forward(self, graph: fx.GraphModule) -> TracedProgram:
        """Name the values of the forward; buffers that it changes in place are also returned."""
        names = [self._inputs[index] for index in self._signature.forward_inputs]
        inputs = dict(zip(_placeholders(graph), names, strict=True))
        results = _results(graph)
        outputs: list[Name] = [("output", str(i)) for i in range(self._signature.outputs)]
        first_update = len(outputs) + len(self._signature.saved)
        for node, name in zip(results[len(outputs) :], self._signature.saved, strict=False):
            is_saved = _is_data(node)
            if is_saved:
                self._saved[name] = str(len(self._saved))
            outputs.append(("saved", self._saved[name]) if is_saved else None)
        aliases = passed_through(
            graph, {node: f"{name[0]}:{name[1]}" for node, name in inputs.items() if name}
        )
        updates = self._updates(results[first_update:], inputs)
        graph.graph.output_node().args = ((*results[:first_update], *updates.values()),)
        outputs += [("buffer_update", name) for name in updates]
        return self.program(graph, names, outputs, aliases)

    def step(self, graph: fx.GraphModule) -> TracedProgram:
        """Name the values of a whole step; buffers that it changes in place are also returned."""
        inputs = dict(zip(_placeholders(graph), self._inputs, strict=True))
        outputs: list[Name] = [("output", "0"), *self.parameter_gradients]
        changes = [node for node in graph.graph.nodes if _is_change(node)]
        updates = self._updates(changes, inputs)
        graph.graph.output_node().args = ((*_results(graph), *updates.values()),)
        outputs += [("buffer_update", name) for name in updates]
        return self.program(graph, self._inputs, outputs)

    def _updates(self, nodes: Sequence[Any], inputs: dict[fx.Node, Name]) -> dict[str, fx.Node]:
        """Return the changes in place that last, by buffer.

        GraphPP returns all changes to keep them in the graph, also of what the graph made itself;
        they stay there for what they do.
        """
        updates: dict[str, fx.Node] = {}
        for node in nodes:
            base = _changed(node)
            if base.op != "placeholder":
                continue
            kind, name = inputs[base] or (None, "")
            if kind != "buffer":
                raise _unnamed(self._where, f"a change in place of {kind} {name}")
            updates.setdefault(name, node)
        return updates

    def deferred(self, graph: fx.GraphModule) -> list[Name]:
        """Name what the first part of a backward leaves to the second."""
        names: list[Name] = []
        count = 0
        for node in _results(graph)[len(self.argument_gradients) :]:
            names.append(("deferred", str(count)) if _is_data(node) else None)
            count += _is_data(node)
        return names

    def program(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Name],
        outputs: Sequence[Name],
        aliases: dict[fx.Node, str] | None = None,
    ) -> TracedProgram:
        """Return a program of the values that have names; the others are no data, and go."""
        kept = [
            (self._value(name, node, (aliases or {}).get(node)), node)
            for name, node in zip(outputs, _results(graph), strict=True)
            if self._has(name, node)
        ]
        graph.graph.output_node().args = (tuple(node for _, node in kept),)
        pairs = list(zip(inputs, _placeholders(graph), strict=True))
        named = tuple(self._value(name, node) for name, node in pairs if self._has(name, node))
        drop_unused_inputs(graph)
        return TracedProgram(graph=graph, inputs=named, outputs=tuple(value for value, _ in kept))

    def _has(self, name: Name, node: Any) -> bool:
        """Tell whether a value is data; it has a name then, and only then."""
        if name is not None and node is None:
            raise CompileError(
                "PPC301",
                f"{name[1]} gets no gradient",
                where=self._where,
                expected="a gradient for everything that requires one",
                hint="freeze the parameter, or use it in the model",
            )
        if (name is not None) != _is_data(node):
            raise _unnamed(self._where, f"{node} as {name}")
        return name is not None

    def _value(self, name: Name, node: fx.Node, alias: str | None = None) -> Value:
        assert name is not None
        kind, text = name
        tensor = node.meta.get("val")
        return Value(
            kind=kind,
            name=text,
            tensor=describe(tensor) if isinstance(tensor, torch.Tensor) else None,
            alias=alias if kind == "saved" else None,
        )


def _is_change(node: fx.Node) -> bool:
    """Tell whether an operation changes its first argument."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _changed(node: fx.Node) -> fx.Node:
    """Return the value that an operation in place changes, maybe through views of it."""
    while (
        isinstance(node.target, torch._ops.OpOverload)
        and (node.target.is_view or node.target._schema.is_mutable)
        and node.args
        and isinstance(node.args[0], fx.Node)
    ):
        node = node.args[0]
    return node


def _placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _results(graph: fx.GraphModule) -> list[Any]:
    return list(graph.graph.output_node().args[0])


def _is_data(node: Any) -> bool:
    return isinstance(node, fx.Node) and is_data(node.meta.get("val"))


def _unnamed(where: Where, found: str) -> CompileError:
    return CompileError(
        "PPC304",
        "a graph of GraphPP has a value that cannot be bound by name",
        where=where,
        expected="parameters, buffers, inputs, outputs, saved values and gradients",
        found=found,
        hint="report this model, or use --compile.precompile_engine stage",
    )
