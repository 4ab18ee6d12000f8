"""Compiled programs are the same bytes every time, and load without a compiler or not at all."""

import subprocess

import pytest
import torch

from pp_precompile.contract.errors import CompileError, LoadError, Where
from pp_precompile.stage import kernels, private_torch
from pp_precompile.stage.compile import compile_program, compiler_factors, to_bytes
from pp_precompile.stage.counters import counters
from tests.modules import Block, traced

X = torch.empty(4, 8, requires_grad=True)


@pytest.fixture(scope="module")
def program():
    """A small forward program, compiled once."""
    graph = traced(Block(), X).programs["forward"].graph
    return graph, compile_program(graph, Where(stage=0))


def test_compiling_again_gives_the_same_bytes(program) -> None:
    graph, first = program
    with counters.expect(compiled=1, loaded=0):
        second = compile_program(graph, Where(stage=0))
    assert to_bytes(first) == to_bytes(second)
    assert first.kernels


def test_loading_runs_no_command_and_computes_the_same(program, monkeypatch) -> None:
    graph, blob = program

    def forbidden(*args, **kwargs):
        raise AssertionError(f"a command was started: {args}")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    with kernels.serve(blob.kernels):
        loaded = private_torch.load_artifact(blob.code)
    inputs = [
        torch.rand(node.meta["val"].shape) for node in graph.graph.nodes if node.op == "placeholder"
    ]
    expected = graph(*[value.clone() for value in inputs])
    for found, wanted in zip(loaded(inputs), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_a_boxed_call_empties_its_list(program) -> None:
    graph, blob = program
    with kernels.serve(blob.kernels):
        loaded = private_torch.load_artifact(blob.code)
    inputs = [torch.rand(n.meta["val"].shape) for n in graph.graph.nodes if n.op == "placeholder"]
    loaded(inputs)
    assert inputs == []


def test_a_missing_kernel_is_an_error_and_never_compiled(program) -> None:
    _, blob = program
    with pytest.raises(LoadError) as raised, kernels.serve({}):
        private_torch.load_artifact(blob.code)
    assert raised.value.code == "PPC303"
    assert "nothing was compiled" in str(raised.value)


def test_source_keys_frame_their_parts() -> None:
    assert kernels.source_key(("a", "bc")) != kernels.source_key(("ab", "c"))


def test_kernels_hold_no_absolute_path(program) -> None:
    _, blob = program
    folder = torch.__file__.rsplit("/", 2)[0].encode()
    for data in (*blob.kernels.values(), blob.code):
        assert folder not in data
        assert b".main.cpp" not in data


def test_kernels_are_serial(program) -> None:
    """A parallel region would tie results to the thread count of the run."""
    _, blob = program
    assert b"#pragma omp" not in blob.code


def test_compiler_settings_are_factors() -> None:
    import torch._inductor.config as inductor

    with inductor.patch({"epilogue_fusion": not inductor.epilogue_fusion}):
        changed = compiler_factors()
    assert changed != compiler_factors()


def test_a_failing_compiler_is_reported_with_stage_and_program(monkeypatch) -> None:
    def broken(graph):
        raise OSError("no such compiler")

    monkeypatch.setattr(private_torch, "compile_artifact", broken)
    graph = traced(Block(), X).programs["forward"].graph
    with pytest.raises(CompileError) as raised:
        compile_program(graph, Where(stage=3, program="forward"))
    assert raised.value.code == "PPC302"
    assert "stage 3, program forward" in str(raised.value)
    assert "no such compiler" in str(raised.value)


def test_an_unknown_torch_is_refused(monkeypatch) -> None:
    from pp_precompile.contract.errors import PrecompileError

    private_torch.check_version()
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(PrecompileError, match=r"2\.99\.0") as raised:
        private_torch.check_version()
    assert raised.value.code == "PPC006"
