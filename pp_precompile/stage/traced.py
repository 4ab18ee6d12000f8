"""A traced program: its graph, and what each input and output means."""

from dataclasses import dataclass, replace

from torch import fx

from pp_precompile.contract.program import Kind, Value


@dataclass(frozen=True, kw_only=True)
class TracedProgram:
    """A graph that is ready to compile, and what its inputs and outputs mean, in order."""

    graph: fx.GraphModule
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def input_nodes(self) -> list[tuple[Value, fx.Node]]:
        """Return every input with its node."""
        nodes = [node for node in self.graph.graph.nodes if node.op == "placeholder"]
        return list(zip(self.inputs, nodes, strict=True))

    def output_nodes(self) -> list[tuple[Value, fx.Node]]:
        """Return every output with the node that computes it."""
        return list(zip(self.outputs, self.graph.graph.output_node().args[0], strict=True))


def without_unused(program: TracedProgram, kind: Kind) -> TracedProgram:
    """Return ``program`` without the inputs of a kind that it does not use (erased in place)."""
    kept: list[Value] = []
    for value, node in program.input_nodes():
        if value.kind == kind and not node.users:
            program.graph.graph.erase_node(node)
        else:
            kept.append(value)
    program.graph.recompile()
    return replace(program, inputs=tuple(kept))
