import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import step_time
from benchmarks.graph_pp import RefusedError
from benchmarks.job import Job
from benchmarks.process import CommandError
from benchmarks.step_report import Measured
from tests.benchmarks.step_samples import steps, wrapper


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """Schedule and way of every training that was started, in order; none really is."""
    seen: list[tuple[str, str]] = []

    def way(name: str) -> Any:
        def run(job: Job, folder: Path, places: Any) -> Any:
            seen.append((job.schedule or "", name))
            if (name, job.schedule) == ("graph_pp", "GPipe"):
                raise RefusedError("GraphPP wants another schedule")
            return steps(1.0)

        return run

    monkeypatch.setattr(step_time, "WAYS", {name: way(name) for name in step_time.WAYS})
    monkeypatch.setattr(
        step_time,
        "_built",
        lambda job, *_: Measured(schedule=job.schedule, unit_bubble=10.0, build_seconds=1.0),
    )
    monkeypatch.setattr(step_time, "end_children_when_ended", lambda: None)
    monkeypatch.setattr(step_time, "_wrapper", lambda *_: wrapper(50.0))
    monkeypatch.setattr(step_time.tempfile, "mkdtemp", lambda **_: str(_new(tmp_path / "runs")))
    return seen


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_ways_take_turns_and_a_refused_one_is_not_tried_again(
    started: list[tuple[str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "step.json"
    words = ["--repeat", "2", "--schedules", "GPipe", "1F1B", "--json", str(file)]
    assert step_time.main(words) == 0
    assert started == [
        *(("GPipe", way) for way in ("ours", "graph_pp", "eager", "eager_plain")),
        *(("1F1B", way) for way in ("ours", "graph_pp", "eager", "eager_plain")),
        *(("GPipe", way) for way in ("eager", "eager_plain", "ours")),
        *(("1F1B", way) for way in ("graph_pp", "eager", "eager_plain", "ours")),
    ]
    data = json.loads(file.read_text())
    assert data["schedules"]["GPipe"]["refused"] == {"graph_pp": "GraphPP wants another schedule"}
    assert data["ratios"]["eager/ours[GPipe]"]["samples"] == [1.0, 1.0]
    assert not (tmp_path / "runs").exists()


def test_a_failed_check_is_an_error(
    started: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(step_time.WAYS, "eager", lambda *_: steps(1.0, losses=(8.0, 7.6)))
    assert step_time.main(["--repeat", "1", "--schedules", "GPipe"]) == 1


def test_a_run_that_fails_leaves_its_output(
    started: list[tuple[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any) -> None:
        raise CommandError("exit code 1: reason")

    monkeypatch.setitem(step_time.WAYS, "ours", fail)
    assert step_time.main(["--repeat", "1", "--schedules", "GPipe"]) == 1
    assert "reason" in capsys.readouterr().err
    assert (tmp_path / "runs").is_dir()


@pytest.mark.parametrize(
    "words",
    [["--ranks", "3"], ["--steps", "0"], ["--schedules", "FIFO"], ["--ways", "eager"]],
)
def test_options_that_cannot_work_are_usage_errors(words: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        step_time.main(words)
    assert error.value.code == 2
