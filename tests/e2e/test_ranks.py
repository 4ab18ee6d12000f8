"""One rank meets a fault: all ranks end alike, with its reason, and nobody hangs."""

import shutil
from pathlib import Path

import pytest

from tests.e2e import faults, launch
from tests.e2e.conftest import arguments

pytestmark = pytest.mark.torchrun

STRICT = ("--compile.precompile_policy", "strict")
SHORT = ("--training.steps", "1")


def _run(
    store: Path, folder: Path, cache: Path, fault: str, *extra: str, timeout: int = 120
) -> launch.Result:
    environment = launch.environment(cache, FAULT=fault)
    job = arguments(2, store, *SHORT, *extra)
    return launch.train(job, environment, folder / "run", ranks=2, timeout=timeout)


@pytest.fixture(scope="module")
def slow(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[launch.Result, Path]:
    """A PP2 job one of whose ranks compiles for longer than the process group's timeout."""
    folder = tmp_path_factory.mktemp("slow")
    timeout = ("--comm.init_timeout_seconds", str(int(faults.SLOW_SECONDS) // 2))
    # It may compile everything itself, on few cores that it shares: as long as any job may take.
    fault = "compile_is_slow:1"
    result = _run(folder / "store", folder, cache, fault, *timeout, timeout=launch.TIMEOUT)
    return result, folder / "store"


def test_compiling_past_the_group_timeout_is_waited_for(slow: tuple[launch.Result, Path]) -> None:
    result, store = slow
    assert result.code == 0, result.output
    assert len(result.losses()) == 1
    assert len(list((store / "builds").iterdir())) == 1


def test_ranks_on_other_cpus_are_named_on_every_rank(
    slow: tuple[launch.Result, Path], cache: Path, tmp_path: Path
) -> None:
    result = _run(slow[1], tmp_path, cache, "other_cpu:1")
    assert result.code != 0
    assert [result.rank(r)["code"] for r in range(2)] == [1, 1]
    assert result.own_output.count("PPC403: ranks 0 and 1 are not the same job") == 2
    assert "environment.device.capability = sse2" in result.output
    assert all(result.rank(r)["ours"]["loaded"] == 0 for r in range(2))


def test_ranks_with_other_arguments_are_named_on_every_rank(
    slow: tuple[launch.Result, Path], cache: Path, tmp_path: Path
) -> None:
    result = _run(slow[1], tmp_path, cache, "other_arguments:1")
    assert [result.rank(r)["code"] for r in range(2)] == [1, 1]
    assert result.own_output.count("PPC403: ranks 0 and 1 are not the same job") == 2
    assert "training.seq_len = 256" in result.output
    assert "training.seq_len = 128" in result.output


def test_a_rank_that_cannot_load_stops_all_with_its_reason(
    slow: tuple[launch.Result, Path], cache: Path, tmp_path: Path
) -> None:
    result = _run(slow[1], tmp_path, cache, "load_fails:1", *STRICT)
    assert [result.rank(r)["code"] for r in range(2)] == [1, 1]
    assert "PPC305: the stored program could not be loaded" in result.output
    assert "PPC401: rank 1 failed, so this rank stops too (rank 1)" in result.output
    assert "the file system went away" in result.output
    assert result.rank(0)["losses"] == []


def test_a_rank_that_cannot_compile_stops_all_with_its_reason(cache: Path, tmp_path: Path) -> None:
    result = _run(tmp_path / "store", tmp_path, cache, "compile_fails:1")
    assert [result.rank(r)["code"] for r in range(2)] == [1, 1]
    assert "PPC302: the program could not be compiled" in result.output
    assert "PPC401: rank 1 failed, so this rank stops too (rank 1)" in result.output
    assert "no space for the compiler" in result.output
    assert not list((tmp_path / "store" / "builds").iterdir())


def test_one_ranks_missing_program_is_refused_on_every_rank(
    slow: tuple[launch.Result, Path], cache: Path, tmp_path: Path
) -> None:
    store = Path(shutil.copytree(slow[1], tmp_path / "store"))
    victim = max((p for p in (store / "blobs").rglob("*") if p.is_file()), key=_size)
    victim.unlink()
    result = _run(store, tmp_path, cache, "", *STRICT)
    assert [result.rank(r)["code"] for r in range(2)] == [1, 1]
    assert result.output.count("PPC203") >= 2
    assert victim.name in result.output
    assert all(result.rank(r)["ours"]["loaded"] == 0 for r in range(2))


def _size(path: Path) -> int:
    return path.stat().st_size
