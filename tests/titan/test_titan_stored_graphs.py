"""Stored programs behind GraphPP's interface: what goes where, by name."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from pp_precompile.contract.errors import PrecompileError, StaleBuildError
from pp_precompile.contract.stage import StageRecord
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.titan.stored_graphs import StoredGraph, StoredGraphProvider
from tests.graph.builds import load

BUILD = load("llama3_pp2_graph_pp_dualpipev")


class Module(nn.Module):
    """Has the names of a stage's parameters and buffers, in another order than the record."""

    def __init__(self, record: StageRecord) -> None:
        super().__init__()
        self._named = {
            item.name: nn.Parameter(torch.zeros(()), requires_grad=item.tensor.requires_grad)
            for item in reversed(record.parameters)
        }
        self._named_buffers = {item.name: torch.zeros(()) for item in record.buffers}

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self._named.items()

    def named_buffers(self, *_: Any, **__: Any) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._named_buffers.items()


class Programs:
    """Programs that return the names of their outputs, and remember what they were given."""

    def __init__(self, record: StageRecord) -> None:
        self.calls: dict[str, list[Any]] = {}
        self.by_role = {role: self._program(role, record) for role in record.programs}

    def _program(self, role: str, record: StageRecord) -> Any:
        def run(values: list[Any]) -> tuple[str, ...]:
            assert not torch.is_grad_enabled()
            self.calls[role] = list(values)
            values.clear()
            return tuple(f"{v.kind} {v.name}" for v in record.programs[role].outputs)

        return run


def _graph(index: int) -> tuple[StoredGraph, Programs, Module]:
    record = BUILD.stages[index]
    module, programs = Module(record), Programs(record)
    return (
        StoredGraph(LoadedStage(record=record, programs=programs.by_role), module),
        programs,
        module,
    )


def _forward(graph: StoredGraph, module: Module, **keywords: Any) -> tuple[Any, tuple[Any, ...]]:
    mesh = object()
    parameters = [value for p in module._named.values() for value in (p, mesh)]
    return graph.forward(
        ("activation",),
        keywords or {"positions": "positions"},
        "labels",
        {"global_valid_tokens": "count", "another": "unused"},
        unsharded_param_values=graph.unshard_params(parameters),
        flat_buffer_values=list(module._named_buffers.values()),
    )


@pytest.mark.parametrize("index", range(4))
def test_every_input_of_a_forward_is_the_one_of_its_name(index: int) -> None:
    graph, programs, module = _graph(index)
    result, saved = _forward(graph, module)
    named = {
        ("argument", "0"): "activation",
        ("keyword", "positions"): "positions",
        ("loss_argument", "1"): "labels",
        ("loss_argument", "2"): "count",
    }
    for value, found in zip(
        BUILD.stages[index].programs["forward"].inputs, programs.calls["forward"], strict=True
    ):
        known = {"parameter": module._named, "buffer": module._named_buffers}.get(value.kind)
        assert found is (known[value.name] if known else named[value.kind, value.name])
    assert result == "output 0"
    assert saved == tuple(f"saved {i}" for i in range(len(saved)))


def test_a_backward_takes_saved_values_by_name_and_returns_gradients_in_the_modules_order() -> None:
    graph, programs, module = _graph(1)
    _, saved = _forward(graph, module)
    of_inputs, of_parameters = graph.full_backward((), saved, ("gradient",))
    taken = BUILD.stages[1].programs["backward"].inputs
    assert programs.calls["backward"] == [
        "gradient" if value.kind == "tangent" else f"saved {value.name}" for value in taken
    ]
    assert of_inputs == ["argument_gradient 0"]
    assert of_parameters == [f"parameter_gradient {name}" for name in module._named]
    assert graph.num_unsharded_param_grad_values == len(module._named)


def test_the_parts_of_a_backward_hand_over_what_they_defer() -> None:
    graph, programs, module = _graph(1)
    _, saved = _forward(graph, module)
    of_inputs, deferred = graph.backward_input((), saved, ("gradient",))
    assert of_inputs == ["argument_gradient 0"]
    of_parameters = graph.backward_weight(deferred)
    taken = BUILD.stages[1].programs["backward_weight"].inputs
    assert programs.calls["backward_weight"] == [f"deferred {value.name}" for value in taken]
    assert of_parameters == [f"parameter_gradient {name}" for name in module._named]


def test_an_overlap_is_called_with_a_backward_and_a_forward() -> None:
    graphs = {index: _graph(index) for index in (0, 3)}
    stages = [
        SimpleNamespace(stage_index=i, submod=module, set_graphs=lambda graph: None)
        for i, (_, _, module) in graphs.items()
    ]
    loaded = {
        i: LoadedStage(record=BUILD.stages[i], programs=programs.by_role)
        for i, (_, programs, _) in graphs.items()
    }
    provider = StoredGraphProvider(BUILD.schedule, loaded)
    overlaps = provider.prepare_graphs(SimpleNamespace(_stages=stages), None, loss_kwargs={})
    assert set(overlaps) == {(0, 3), (3, 0)}
    again = provider.prepare_graphs(SimpleNamespace(_stages=stages), None, loss_kwargs={})
    assert again is overlaps
    _, programs, module = graphs[0]
    count = len([v for v in BUILD.stages[3].programs["forward"].outputs if v.kind == "saved"])
    of_inputs, of_parameters, result, saved = overlaps[0, 3].forward_backward(
        backward_stage_output=(),
        backward_saved_values_for_backward=tuple(f"saved {i}" for i in range(count)),
        output_grads_from_next=(),
        forward_args=("tokens",),
        forward_kwargs={"positions": "positions"},
        forward_target=None,
        forward_loss_kwargs={},
        forward_unsharded_param_values=list(module._named.values()),
        forward_flat_buffer_values=[],
    )
    assert of_inputs == ["argument_gradient 0"]
    assert of_parameters == [f"parameter_gradient {name}" for name in graphs[3][2]._named]
    assert (result, saved[0]) == ("output 0", "saved 0")
    assert programs.calls["overlap"][:2] == ["saved 0", "saved 1"]
    assert programs.calls["overlap"][-1] == "tokens"


def test_other_keywords_are_refused() -> None:
    graph, _, module = _graph(1)
    with pytest.raises(StaleBuildError, match="other keyword inputs") as raised:
        _forward(graph, module, positions=1, mask=2)
    assert raised.value.code == "PPC104"
    assert "mask, positions" in str(raised.value)


def test_a_program_that_is_not_there_is_named() -> None:
    graph, _, _ = _graph(0)
    assert not graph.supports_backward_input_weight_split
    with pytest.raises(PrecompileError, match="stage 0 has no backward_weight program") as raised:
        graph.run("backward_weight", [])
    assert raised.value.code == "PPC105"
