"""Constants that hang on a traced graph."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from pp_precompile.contract.errors import CompileError
from pp_precompile.stage.constants import inline_constants


def _masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    result = x.clone()
    result[mask] = 7
    return result


def test_numbers_become_operations_with_the_same_result() -> None:
    x, mask = torch.arange(4), torch.tensor([True, False, True, False])
    graph = make_fx(_masked)(x, mask)
    assert any(node.op == "get_attr" for node in graph.graph.nodes)
    inline_constants(graph)
    assert all(node.op != "get_attr" for node in graph.graph.nodes)
    assert torch.equal(graph(x, mask), torch.tensor([7, 1, 7, 3]))


def test_larger_constants_are_refused() -> None:
    table = torch.arange(4)
    graph = make_fx(lambda x: x + table)(torch.zeros(4))
    with pytest.raises(CompileError) as raised:
        inline_constants(graph)
    assert raised.value.code == "PPC304"
    assert "torch.int64[4]" in str(raised.value)
