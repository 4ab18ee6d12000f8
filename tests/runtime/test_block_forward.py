"""Stored programs of a block behind an ordinary module: gradients, swapped state, errors."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pp_precompile.contract.errors import StaleBuildError
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.runtime.block_forward import BlockForward, install_block
from pp_precompile.runtime.loader import LoadedBlock, load_stages
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.stage.blocks import BlockTracer
from pp_precompile.stage.describe import describe_state
from pp_precompile.stage.programs import StageSource, TracedStage, compile_stages

BATCH, WIDTH = 2, 8


class Block(nn.Module):
    """A layer with a buffer, a frozen parameter, a counter that it updates, and optional inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.full((WIDTH,), 0.5), requires_grad=False)
        self.register_buffer("shift", torch.linspace(0, 1, WIDTH))
        self.register_buffer("calls", torch.zeros(()))

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        assert mask is None
        assert positions is not None
        self.calls += 1
        return x + torch.tanh(self.inner(x * self.scale + self.shift)) * positions[:, None]


def _source(module: nn.Module) -> StageSource:
    hidden = TensorSpec(
        shape=(BATCH, WIDTH),
        stride=(WIDTH, 1),
        dtype="float32",
        device="cpu",
        requires_grad=True,
    )
    positions = TensorSpec(shape=(BATCH,), stride=(1,), dtype="int64", device="cpu")
    return StageSource(
        index=3,
        modules=("layers.7",),
        module=module,
        arguments=(NamedTensor(name="0", tensor=hidden),),
        keywords=(NamedTensor(name="positions", tensor=positions),),
    )


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedBlock]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        with torch.device("meta"):
            module = Block()
        block = BlockTracer(torch.device("cpu"), {}).trace(_source(module))
        parameters, buffers = describe_state(module, device="cpu")
        stage = TracedStage(
            source=block.source,
            outputs=block.outputs,
            parameters=parameters,
            buffers=buffers,
            programs={},
            blocks=(block,),
        )
        sink = MemorySink()
        record = stage.record(compile_stages([stage], sink))
        [loaded] = load_stages([record], sink.read)[3].blocks
        yield loaded


def _pair(loaded: LoadedBlock) -> tuple[Block, Block, BlockForward]:
    """Return a block, and one with the same state that runs the programs."""
    torch.manual_seed(0)
    eager, ours = Block(), Block()
    ours.load_state_dict(eager.state_dict())
    return eager, ours, install_block(ours, loaded)


def _inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(BATCH, WIDTH, requires_grad=True), torch.arange(1, BATCH + 1)


def test_outputs_gradients_and_buffers_are_those_of_the_module(loaded: LoadedBlock) -> None:
    eager, ours, _ = _pair(loaded)
    for _ in range(2):
        x, positions = _inputs()
        y = x.detach().clone().requires_grad_()
        expected, found = eager(x, None, positions), ours(y, None, positions=positions)
        torch.testing.assert_close(found, expected)
        expected.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(y.grad, x.grad)
    for name, parameter in eager.named_parameters():
        other = ours.get_parameter(name)
        assert (parameter.grad is None) == (other.grad is None)
        if parameter.grad is not None:
            torch.testing.assert_close(other.grad, parameter.grad)
    assert ours.calls == eager.calls == 2


def test_the_parameters_are_those_of_the_moment(loaded: LoadedBlock) -> None:
    """FSDP2 puts others in their place for each call."""
    eager, ours, _ = _pair(loaded)
    x, positions = _inputs()
    before = ours(x, None, positions)
    new = nn.Parameter(torch.ones(WIDTH, WIDTH))
    for module in (eager, ours):
        module.inner._parameters["weight"] = new
    after = ours(x, None, positions)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, eager(x, None, positions))
    after.sum().backward()
    assert new.grad is not None


def test_without_gradients_nothing_is_recorded(loaded: LoadedBlock) -> None:
    _, ours, _ = _pair(loaded)
    x, positions = _inputs()
    with torch.no_grad():
        assert not ours(x, None, positions).requires_grad


def test_autograd_keeps_the_saved_values(loaded: LoadedBlock) -> None:
    """So that checkpointing around a block works: it drops them and runs the block again."""
    eager, ours, _ = _pair(loaded)
    x, positions = _inputs()
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        ours(x, None, positions)
    assert packed
    x, positions = _inputs()
    found = checkpoint(ours, x, None, positions, use_reentrant=False)
    found.sum().backward()
    y = x.detach().clone().requires_grad_()
    eager(y, None, positions).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(ours.inner.weight.grad, eager.inner.weight.grad)


@pytest.mark.parametrize(
    ("args", "kwargs", "found"),
    [
        ((torch.zeros(BATCH, WIDTH), None), {}, "1 positional and []"),
        ((), {}, "0 positional"),
        ((torch.zeros(BATCH, WIDTH), torch.zeros(1)), {}, "mask"),
        ((torch.zeros(BATCH, WIDTH + 1), None, torch.zeros(BATCH).long()), {}, "[2, 9]"),
        ((torch.zeros(BATCH, WIDTH), None, torch.zeros(BATCH)), {}, "float32"),
    ],
)
def test_other_inputs_are_refused(
    loaded: LoadedBlock, args: tuple[object, ...], kwargs: dict[str, object], found: str
) -> None:
    _, ours, _ = _pair(loaded)
    with pytest.raises(StaleBuildError) as raised:
        ours(*args, **kwargs)
    assert raised.value.code == "PPC104"
    assert found in str(raised.value.found)
    assert raised.value.where.stage == 3


def test_another_parameter_is_refused(loaded: LoadedBlock) -> None:
    _, ours, _ = _pair(loaded)
    ours.inner.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH, dtype=torch.bfloat16))
    x, positions = _inputs()
    with pytest.raises(StaleBuildError, match=r"inner\.weight") as raised:
        ours(x, None, positions)
    assert raised.value.code == "PPC103"


def test_a_strided_input_is_taken(loaded: LoadedBlock) -> None:
    eager, ours, _ = _pair(loaded)
    _, positions = _inputs()
    x = torch.randn(WIDTH, BATCH).T
    torch.testing.assert_close(ours(x, None, positions), eager(x, None, positions))
