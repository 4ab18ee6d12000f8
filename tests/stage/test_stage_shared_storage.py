"""Saved values that are one memory in several shapes are counted once."""

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from pp_precompile.contract.program import Value
from pp_precompile.stage.describe import describe
from pp_precompile.stage.shared_storage import with_shared_storage
from pp_precompile.stage.traced import TracedProgram


def compute(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    base = x * 2
    turned = base.transpose(0, 1)
    return (
        base.view(2, 8),
        base,
        turned.reshape(4, 4).clone(),
        torch.view_as_complex(base.view(2, 4, 2)),
        base[:2],
        base[2:],
        turned,
        base + 0,
    )


def aliases(kinds: str = "ssssssss") -> list[str | None]:
    """Trace ``compute`` with outputs of these kinds (saved or output); return their aliases."""
    graph: fx.GraphModule = make_fx(compute)(torch.ones(4, 4))
    nodes = graph.graph.output_node().args[0]
    outputs = tuple(
        Value(
            kind="saved" if kind == "s" else "output",
            name=str(position),
            tensor=describe(node.meta["val"]),
        )
        for position, (kind, node) in enumerate(zip(kinds, nodes, strict=True))
    )
    program = TracedProgram(graph=graph, inputs=(), outputs=outputs)
    return [value.alias for value in with_shared_storage(program).outputs]


def test_whole_views_of_one_tensor_are_its_memory() -> None:
    found = aliases()
    assert found == [None, "saved:0", None, "saved:0", None, None, "saved:0", None]


def test_only_saved_values_have_an_alias() -> None:
    assert aliases("osssssss")[:2] == [None, None]
    assert aliases("osssssss")[3] == "saved:1"


def test_a_value_that_is_an_input_stays_one() -> None:
    graph: fx.GraphModule = make_fx(lambda x: (x.view(16), x.view(2, 8)))(torch.ones(4, 4))
    values = tuple(
        Value(kind="saved", name=str(i), tensor=describe(node.meta["val"]), alias="argument:0")
        for i, node in enumerate(graph.graph.output_node().args[0])
    )
    program = TracedProgram(graph=graph, inputs=(), outputs=values)
    assert with_shared_storage(program).outputs == values
