import json
import os
import sys
import time
from pathlib import Path

from benchmarks.process import run
from benchmarks.wrapper_overhead import Stopwatch, _measure, _profiled


def test_time_inside_programs_is_taken_off() -> None:
    watch = Stopwatch()
    program = watch.around(lambda: time.sleep(0.002))

    def call() -> None:
        program()
        time.sleep(0.0005)

    (times,) = _measure({"F": call, "F again": call}, watch, 5).values()
    assert times["call"] > 2500
    assert times["overhead"] < times["call"] - 2000


def test_a_profile_leaves_programs_out() -> None:
    watch = Stopwatch()
    program = watch.around(lambda: sorted(range(1000)))

    def call() -> None:
        program()
        len("wrapper")

    names = [name for name, _ in _profiled({"B": call}, watch, 5)["B"]]
    assert any("len" in name for name in names)
    assert not any("sorted" in name for name in names)


def test_a_stage_is_measured(tmp_path: Path) -> None:
    """In a process of its own: torchtitan's device is that of the whole process."""
    file = tmp_path / "wrapper.json"
    command = [sys.executable, "-m", "benchmarks.wrapper_overhead", "--calls", "5", "--profile"]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    more = ["--blocks", "1", "--json", str(file)]
    run([*command, *more], environment, output=tmp_path / "out", timeout=300)
    data = json.loads(file.read_text())
    (kinds,) = data["stages"].values()
    assert list(kinds) == ["F", "B", "I", "W"]
    assert all(0 < times["overhead"] < times["call"] for times in kinds.values())
    assert data["autograd"].keys() == {"F", "B"}
    assert "2 parameters B:" in (tmp_path / "out").read_text()
