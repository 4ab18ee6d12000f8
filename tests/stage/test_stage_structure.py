"""Programs share a key exactly if they compute the same."""

from collections.abc import Callable

import pytest
import torch
from torch import fx, nn

from pp_precompile.contract.errors import CompileError
from pp_precompile.stage.structure import canonical_graph, program_key
from tests.modules import Block, traced

X = torch.empty(4, 8, requires_grad=True)


def _keys(module: nn.Module, x: torch.Tensor = X) -> dict[str, str]:
    return {role: program.key for role, program in traced(module, x).programs.items()}


def _frozen() -> nn.Module:
    module = Block()
    module.get_submodule("proj").weight.requires_grad_(False)
    return module


def test_other_names_and_weights_share_a_key() -> None:
    assert _keys(Block(name="wq")) == _keys(Block(name="some_other_layer"))


DIFFERENT: dict[str, Callable[[], dict[str, str]]] = {
    "epsilon": lambda: _keys(Block(eps=1e-6)),
    "width": lambda: _keys(Block(16), torch.empty(4, 16, requires_grad=True)),
    "batch": lambda: _keys(Block(), torch.empty(2, 8, requires_grad=True)),
    "dtype": lambda: _keys(Block().double(), torch.empty(4, 8, dtype=torch.float64)),
    "stride": lambda: _keys(Block(), torch.empty(8, 4).t().requires_grad_()),
    "frozen parameter": lambda: _keys(_frozen()),
    "input without gradient": lambda: _keys(Block(), X.detach()),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_reaches_the_program_changes_a_key(case: str) -> None:
    assert DIFFERENT[case]() != _keys(Block())


def test_compiler_factors_are_part_of_the_key() -> None:
    graph = traced(Block(), X).programs["forward"].graph
    assert program_key(graph, {"torch": "a"}) != program_key(graph, {"torch": "b"})


def test_constants_in_the_graph_are_part_of_the_key() -> None:
    def key(value: float) -> str:
        root = nn.Module()
        root.register_buffer("constant", torch.full((2,), value))
        graph = fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = torch.empty(2)
        graph.output((graph.call_function(torch.add, (x, graph.get_attr("constant"))),))
        return program_key(fx.GraphModule(root, graph), {})

    assert key(1.0) == key(1.0)
    assert key(1.0) != key(2.0)


def test_a_constant_without_a_form_is_refused() -> None:
    graph = fx.Graph()
    graph.output((graph.call_function(torch.add, (range(3), 1)),))
    with pytest.raises(CompileError) as raised:
        program_key(fx.GraphModule(nn.Module(), graph), {})
    assert raised.value.code == "PPC304"


def test_canonical_graphs_carry_no_module_or_file_names() -> None:
    graph = canonical_graph(traced(Block(name="secret_name"), X).programs["forward"].graph)
    assert "secret_name" not in graph.print_readable(print_output=False)
    assert all("nn_module_stack" not in node.meta for node in graph.graph.nodes)
    assert all(node.stack_trace is None for node in graph.graph.nodes)
