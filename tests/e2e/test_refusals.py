"""What cannot work is refused with one clear error, on every rank, before anything compiles."""

import shutil
import stat
from pathlib import Path

import pytest

from tests.e2e import launch
from tests.e2e.conftest import arguments

pytestmark = pytest.mark.torchrun

STRICT = ("--compile.precompile_policy", "strict")


def _errors(result: launch.Result, code: str) -> list[str]:
    return [line for line in result.output.splitlines() if line.startswith(f"{code}:")]


def test_strict_without_a_build_stops_every_rank_and_compiles_nothing(
    cache: Path, built: Path, tmp_path: Path
) -> None:
    job = arguments(4, built, *STRICT, "--training.seq_len", "128")
    result = launch.train(job, launch.environment(cache), tmp_path, ranks=4)
    assert result.code != 0
    assert result.own_output.count("\nPPC101: ") == 4
    # The nearest build is named with what differs.
    assert "training.seq_len: 256 there, 128 here" in result.output
    assert [result.rank(rank)["code"] for rank in range(4)] == [1, 1, 1, 1]
    assert all(result.rank(rank)["ours"]["compiled"] == 0 for rank in range(4))
    assert "Traceback" not in result.own_output
    report = result.output[result.output.index("Root Cause (first observed failure)") :]
    assert "PPC101" in report
    assert "Traceback" not in report


def test_a_damaged_program_is_refused_by_strict_and_rebuilt_by_auto(
    cache: Path, trained: tuple[launch.Result, Path], tmp_path: Path
) -> None:
    store = Path(shutil.copytree(trained[1], tmp_path / "store"))
    victim = max((store / "blobs").rglob("*"), key=lambda p: p.is_file() and p.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.chmod(victim.stat().st_mode | stat.S_IWUSR)
    victim.write_bytes(data)

    strict = launch.train(
        arguments(4, store, *STRICT), launch.environment(cache), tmp_path / "strict", ranks=4
    )
    assert strict.code != 0
    assert "PPC204" in strict.output
    assert victim.name in strict.output

    auto = launch.train(arguments(4, store), launch.environment(cache), tmp_path / "auto", ranks=4)
    assert auto.code == 0, auto.output
    assert "PPC204" in auto.output, "the rebuild comes with a warning"
    assert sum(auto.rank(rank)["ours"]["compiled"] for rank in range(4)) == 1
    assert auto.same_numbers(trained[0])
    assert dict(launch.files(store)) == dict(launch.files(trained[1]))


def test_a_store_that_cannot_be_written_does_not_stop_an_auto_job(
    cache: Path, tmp_path: Path
) -> None:
    """The store's place is below a file, which nobody can write below, root included."""
    (tmp_path / "file").write_text("")
    job = arguments(2, tmp_path / "file" / "store", "--training.steps", "1")
    result = launch.train(job, launch.environment(cache), tmp_path / "run", ranks=2)
    assert result.code == 0, result.output
    assert "PPC202" in result.output
    assert len(result.losses()) == 1
    assert (tmp_path / "file").read_text() == ""


REFUSED = {
    "fewer microbatches than stages": (
        ("--training.local_batch_size", "2"),
        "PPC003",
        ("at least 4 microbatches", "2 (local batch 2 / microbatch 1)"),
    ),
    "batch not divisible": (
        ("--parallelism.pipeline_parallel_microbatch_size", "3"),
        "PPC003",
        ("local batch 8, microbatch 3",),
    ),
    "more stages than layers": (
        ("--parallelism.pipeline_parallel_degree", "16", "--training.local_batch_size", "16"),
        "PPC004",
        ("6 layers", "pipeline_parallel_degree 16"),
    ),
    "a vocabulary that cannot be cut evenly": (
        ("--parallelism.tensor_parallel_degree", "3"),
        "PPC002",
        ("tensor_parallel_degree", "2048"),
    ),
    "context parallel": (
        ("--parallelism.context_parallel_degree", "2"),
        "PPC002",
        ("context_parallel_degree",),
    ),
    "not asked for": (("--compile.no-precompile",), "PPC001", ("--compile.precompile",)),
    "no such configuration": (
        ("--module", "llama3", "--config", "nothing_like_it"),
        "PPC001",
        ("nothing_like_it",),
    ),
}


def test_build_names_an_unknown_flag(cache: Path, tmp_path: Path) -> None:
    words = arguments(4, tmp_path / "store", "--training.no_such_flag", "1")
    result = launch.build(words, launch.environment(cache), timeout=120)
    assert result.code == 2, result.output
    assert "--training.no_such_flag" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("case", REFUSED)
def test_build_refuses_what_cannot_work(case: str, cache: Path, tmp_path: Path) -> None:
    words, code, texts = REFUSED[case]
    store = tmp_path / "store"
    result = launch.build(arguments(4, store, *words), launch.environment(cache), timeout=120)
    assert result.code == 2, result.output
    assert len(_errors(result, code)) == 1, result.output
    assert all(text in result.output for text in texts), result.output
    assert "Traceback" not in result.output
    assert not (store / "builds").exists() or not list((store / "builds").iterdir())


def test_a_schedule_file_that_cannot_run_is_refused_by_every_rank(
    cache: Path, tmp_path: Path
) -> None:
    good = (launch.ROOT / "schedules" / "zb_h1_2x8.csv").read_text()
    file = tmp_path / "lacks_a_w.csv"
    file.write_text(good.replace("1W3", ""))
    words = ("--parallelism.pipeline_parallel_schedule_csv", str(file))
    job = arguments(2, tmp_path / "store", *words)
    result = launch.train(job, launch.environment(cache), tmp_path / "run", ranks=2)
    assert result.code != 0
    assert [result.rank(rank)["code"] for rank in range(2)] == [2, 2]
    assert len(_errors(result, "PPC521")) == 2
    assert "stage 1 does not do microbatch 3 exactly once" in result.output
    assert str(file) in result.output
    assert all(result.rank(rank)["ours"]["compiled"] == 0 for rank in range(2))
    assert not list((tmp_path / "store").rglob("*.msgpack"))
