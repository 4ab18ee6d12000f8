"""A module with installed programs behaves as it did, gradients included."""

import copy

import pytest
import torch
from torch import nn

from pp_precompile.contract.errors import LoadError, PrecompileError, StaleBuildError, StoreError
from pp_precompile.contract.program import BlobRef
from pp_precompile.runtime.loader import LoadedStage, load_stage
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.runtime.stage_forward import install
from pp_precompile.runtime.stored_loss import StoredLoss
from pp_precompile.stage.counters import counters
from pp_precompile.stage.programs import compile_stages
from tests.modules import Block, Loss, traced

torch.manual_seed(0)
X = torch.randn(4, 8)
SCALE = torch.tensor(0.5)


@pytest.fixture(scope="module")
def stage() -> LoadedStage:
    """A block and a loss, traced from meta, compiled, and loaded back."""
    with torch.device("meta"):
        module = Block()
    sink = MemorySink()
    record = traced(module, X.clone().requires_grad_(), loss=True)
    record_entries = compile_stages([record], sink)
    with counters.expect(loaded=3, compiled=0):
        return load_stage(record.record(record_entries), sink.read)


@pytest.fixture
def pair(stage: LoadedStage) -> tuple[Block, Block]:
    """An eager block, and a copy of it that runs the programs."""
    torch.manual_seed(1)
    eager = Block()
    warm = copy.deepcopy(eager)
    install(warm, stage).bind(warm)
    return eager, warm


def test_a_shared_program_gives_bitwise_what_one_of_its_own_gives() -> None:
    """Two blocks of other names: the second runs the first one's programs, then its own."""
    first, second = (traced(Block(name=n), X.clone().requires_grad_()) for n in ("proj", "other"))
    shared, separate = MemorySink(), MemorySink()
    with counters.expect(compiled=2, reused=2):
        entries = compile_stages([first, second], shared)
    with counters.expect(compiled=2, reused=0):
        own_entries = compile_stages([second], separate)
    assert own_entries == entries  # digests of equal bytes
    torch.manual_seed(3)
    block = Block(name="other")
    results = []
    for sink, found in ((shared, entries), (separate, own_entries)):
        module, x = copy.deepcopy(block), X.clone().requires_grad_()
        install(module, load_stage(second.record(found), sink.read)).bind(module)
        output = module(x, scale=SCALE)
        output.square().sum().backward()
        results.append([output, x.grad, *(p.grad for p in module.parameters())])
    assert len(results[0]) == 4
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def _close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare values of order 1 that are float32 sums of some 30 terms in another order."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_outputs_gradients_and_buffers_are_those_of_the_module(pair) -> None:
    inputs = []
    for module in pair:
        x = X.clone().requires_grad_()
        for _ in range(3):  # three microbatches: gradients add up
            module(x, scale=SCALE).square().sum().backward()
        inputs.append(x)
    eager, warm = pair
    _close(inputs[1].grad, inputs[0].grad)
    for name, parameter in eager.named_parameters():
        _close(warm.get_parameter(name).grad, parameter.grad)
    assert warm.calls.item() == eager.calls.item() == 3


def test_without_gradients_it_runs_forward_only(pair) -> None:
    eager, warm = pair
    with torch.no_grad():
        result = warm(X, scale=SCALE)
    _close(result, eager(X, scale=SCALE))
    assert result.grad_fn is None


def test_gradients_in_another_stride_are_copied_into_place(pair) -> None:
    eager, warm = pair
    for module in pair:
        module(X, scale=SCALE).t().contiguous().sum().backward()
    _close(warm.get_parameter("proj.weight").grad, eager.get_parameter("proj.weight").grad)
    tangent = torch.randn(8, 4).t()
    for module in pair:
        module.zero_grad()
        module(X, scale=SCALE).backward(tangent)
    _close(warm.get_parameter("proj.weight").grad, eager.get_parameter("proj.weight").grad)


def test_inputs_in_another_stride_are_copied(pair) -> None:
    eager, warm = pair
    x = torch.randn(8, 4).t()
    _close(warm(x, scale=SCALE), eager(x, scale=SCALE))


@pytest.mark.parametrize(
    ("args", "keywords", "texts"),
    [
        ((X,), {}, ("['scale']", "[]")),
        ((X,), {"scale": None}, ("['scale']",)),
        ((X,), {"scale": SCALE, "mask": SCALE}, ("mask",)),
        ((X, X), {"scale": SCALE}, ("2 positional",)),
        ((torch.randn(3, 8),), {"scale": SCALE}, ("float32[4, 8]", "float32[3, 8]")),
        ((X.double(),), {"scale": SCALE}, ("float64[4, 8]",)),
    ],
)
def test_other_inputs_are_refused(pair, args, keywords, texts) -> None:
    with pytest.raises(StaleBuildError) as raised:
        pair[1](*args, **keywords)
    assert raised.value.code == "PPC104"
    assert raised.value.where.stage == 0
    assert all(text in str(raised.value) for text in texts), str(raised.value)


def test_nothing_runs_before_binding(stage) -> None:
    module = Block()
    install(module, stage)
    with pytest.raises(PrecompileError, match="before its parameters were bound"):
        module(X, scale=SCALE)


@pytest.mark.parametrize("what", ["width", "dtype", "frozen", "missing", "additional", "buffer"])
def test_another_module_is_refused_by_name(stage, what: str) -> None:
    module = Block(16) if what == "width" else Block()
    if what == "dtype":
        module.get_submodule("proj").double()
    if what == "frozen":
        module.get_parameter("proj.weight").requires_grad_(False)
    if what == "missing":
        module.get_submodule("proj").bias = None
    if what == "additional":
        module.extra = nn.Parameter(torch.zeros(1))
    if what == "buffer":
        module.calls = torch.zeros((), dtype=torch.int64)
    forward = install(module, stage)
    with pytest.raises(StaleBuildError) as raised:
        forward.bind(module)
    assert raised.value.code == "PPC103"
    named = {"additional": "extra", "buffer": "calls"}.get(what, "proj.")
    assert named in str(raised.value.where)


def test_the_stored_loss_gives_value_and_gradients(stage) -> None:
    module = Block()
    forward = install(module, stage)
    forward.bind(module)
    loss = StoredLoss(stage, forward, lambda p, t, n, **_: (Loss()(p, t, n), {}))
    labels, count = torch.tensor([1, 2, 3, 4]), torch.tensor(4)
    results = []
    for function in (loss, lambda p, t, n: (Loss()(p, t, n), {})):
        prediction = X.clone().requires_grad_()
        value, metrics = function(prediction, labels, count)
        (value * 3.0).backward()  # a factor that the program did not know
        results.append((value.detach(), prediction.grad))
        assert metrics == {}
    _close(results[0][0], results[1][0])
    _close(results[0][1], results[1][1])


def test_validation_runs_the_eager_loss(stage) -> None:
    called = []
    module = Block()
    forward = install(module, stage)
    forward.bind(module)
    loss = StoredLoss(stage, forward, lambda p, t, n, **_: called.append(n) or (p.sum(), {}))
    with torch.no_grad():
        loss(X, torch.zeros(4, dtype=torch.int64))
    assert called == [None]


def test_a_stage_without_a_loss_program_has_no_stored_loss(stage) -> None:
    without = LoadedStage(record=stage.record, programs={"forward": stage.programs["forward"]})
    with pytest.raises(LoadError, match="no loss program"):
        StoredLoss(without, None, None)  # type: ignore[arg-type]


def test_nothing_is_unpickled_if_the_bytes_do_not_verify(stage, monkeypatch) -> None:
    import pickle

    def forbidden(*args):
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "loads", forbidden)

    def read(ref: BlobRef) -> bytes:
        raise StoreError("PPC204", "damaged")

    with pytest.raises(StoreError):
        load_stage(stage.record, read)


def test_bytes_in_another_form_are_not_unpickled(stage, monkeypatch) -> None:
    import pickle

    monkeypatch.setattr(pickle, "loads", lambda *_: pytest.fail("unpickled"))
    with pytest.raises(StoreError) as raised:
        load_stage(stage.record, lambda ref: b"\x80\x04N.")
    assert raised.value.code == "PPC204"
