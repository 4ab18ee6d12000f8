"""Programs compiled by worker processes are those of one process; no failure leaves one behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pp_precompile.contract.errors import CompileError
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.stage.counters import counters
from pp_precompile.stage.parallel import compile_stages_in
from pp_precompile.stage.pool import Pool, compiler_threads
from pp_precompile.stage.programs import Progress, TracedStage, compile_stages
from pp_precompile.stage.surroundings import describe_surroundings
from tests.modules import Block, traced

ROOT = Path(__file__).parents[2]


def stage(index: int, dim: int, *, loss: bool = False, name: str = "proj") -> TracedStage:
    found = traced(Block(dim, name=name), torch.empty(4, dim, requires_grad=True), loss)
    return replace(found, source=replace(found.source, index=index))


@pytest.fixture(scope="module")
def stages() -> list[TracedStage]:
    """Four stages with seven distinct programs: the one in the middle stands there twice."""
    return [
        stage(0, 8),
        stage(1, 12),
        stage(2, 12, name="other"),
        stage(3, 16, loss=True),
    ]


def content(sink: MemorySink, stages: Sequence[TracedStage]) -> dict[str, tuple[int, bytes]]:
    """Return kernels and bytes by key."""
    found = {}
    for program in (p for stage in stages for p in stage.programs.values()):
        entry = sink.find(program.key)
        assert entry is not None
        found[program.key] = (entry.kernels, sink.read(entry.blob))
    return found


def test_any_number_of_workers_and_any_order_give_the_same_bytes(
    stages: list[TracedStage],
) -> None:
    alone = MemorySink()
    with counters.expect(compiled=7, reused=2):
        compile_stages(stages, alone)
    wanted = content(alone, stages)
    assert len(wanted) == 7
    surroundings = describe_surroundings()
    for jobs, order in {2: [3, 1, 0, 2], 3: [2, 0, 3, 1]}.items():
        shuffled = [stages[index] for index in order]
        sink, heard, again = MemorySink(), [], []
        with Pool(jobs) as pool:
            with counters.expect(compiled=7, reused=2):
                compile_stages_in(pool, surroundings, shuffled, sink, done=heard.append)
            with counters.expect(compiled=0, reused=9):
                compile_stages_in(pool, surroundings, shuffled, sink, done=again.append)
        assert content(sink, stages) == wanted
        assert_heard_of_all(heard, stages, first_of_two=1 if jobs == 2 else 2)
        assert len(again) == 9
        assert ended(pool)


def assert_heard_of_all(
    heard: list[Progress], stages: list[TracedStage], *, first_of_two: int
) -> None:
    """Each program of each stage is reported once, those of equal stages as reused."""
    assert sorted((p.stage, p.role) for p in heard) == sorted(
        (s.source.index, role) for s in stages for role in s.programs
    )
    reused = {(p.stage, p.role) for p in heard if p.reused}
    other = 3 - first_of_two
    assert reused == {(other, "forward"), (other, "backward")}
    assert all((p.seconds == 0.0) == p.reused for p in heard)


def test_a_killed_worker_is_named_with_its_program_and_loses_nothing_else(
    stages: list[TracedStage],
) -> None:
    sink, heard = MemorySink(), []

    def started(stage: int, role: str) -> None:
        if (stage, role) == (0, "backward"):
            pool._workers[0].signal(signal.SIGKILL)

    with pytest.raises(CompileError) as raised, Pool(1) as pool:
        compile_stages_in(
            pool, describe_surroundings(), stages, sink, started=started, done=heard.append
        )
    assert raised.value.code == "PPC302"
    assert "stage 0, program backward" in str(raised.value)
    assert "signal 9 (SIGKILL)" in str(raised.value)
    assert "--jobs" in str(raised.value)
    assert [(p.stage, p.role) for p in heard] == [(0, "forward")]
    assert sink.find(stages[0].programs["forward"].key) == heard[0].entry
    assert ended(pool)


def ended(pool: Pool) -> bool:
    return all(each._process.exitcode is not None for each in pool._workers)


def test_a_program_that_does_not_compile_ends_the_others(
    stages: list[TracedStage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: what was changed in this process, the compiler's name, reaches the workers."""
    import torch._inductor.config as inductor

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "empty"))
    start = time.monotonic()
    compiler = inductor.patch({"cpp.cxx": (None, "no-such-compiler")})
    with pytest.raises(CompileError) as raised, compiler, Pool(2) as pool:
        compile_stages_in(pool, describe_surroundings(), stages, MemorySink())
    assert raised.value.code == "PPC302"
    assert "stage " in str(raised.value)
    assert "no-such-compiler" in str(raised.value)
    assert ended(pool)
    assert time.monotonic() - start < 120


_PARENT = """
import time, torch
import torch._inductor.config as inductor
from pp_precompile.runtime.sinks import MemorySink
from pp_precompile.stage.parallel import compile_stages_in
from pp_precompile.stage.pool import Pool
from pp_precompile.stage.surroundings import describe_surroundings
from tests.stage.test_stage_parallel import stage

if __name__ == "__main__":
    inductor.cpp.cxx = (None, {compiler!r})
    with Pool(2) as pool:
        print(*(each._process.pid for each in pool._workers), flush=True)
        compile_stages_in(pool, describe_surroundings(), [stage(0, 8)], MemorySink())
"""

_COMPILER = """#!/bin/sh
echo $$ >> {pids}
exec sleep 600
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_process_that_builds(how: signal.Signals, tmp_path: Path) -> None:
    """Not even the compilers that workers run."""
    compiler, pids = tmp_path / "compiler", tmp_path / "pids"
    compiler.write_text(_COMPILER.format(pids=pids))
    compiler.chmod(0o755)
    script = tmp_path / "parent.py"
    script.write_text(_PARENT.format(compiler=str(compiler)))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, 120)
        compilers = [int(pid) for pid in pids.read_text().split()]
        assert all(alive(pid) for pid in [*workers, *compilers])
        parent.send_signal(how)
        wait_until(lambda: not any(alive(pid) for pid in [*workers, *compilers]), 120)
        assert parent.wait(120) != 0
    finally:
        parent.kill()
        parent.wait()
        for pid in pids.read_text().split() if pids.exists() else []:
            if alive(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_workers_share_the_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert compiler_threads(1) == cores
    assert compiler_threads(2) == cores
    assert compiler_threads(4 * cores) == 1
