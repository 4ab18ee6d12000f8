import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmarks import step_ways
from benchmarks.graph_pp import RefusedError
from benchmarks.job import STRICT, Job
from benchmarks.places import Places
from benchmarks.process import CommandError
from benchmarks.step_ways import WAYS
from tests.benchmarks.step_samples import steps

JOB = Job(module="m", config="c", degree=2, steps=5, schedule="LoopedBFS")

REFUSAL = """
[rank1]:   File "pipeline.py", line 63, in _validate_graph_pp_config
[rank1]: ValueError: GraphPP currently requires a runtime PP schedule. Got GPipe.
E1201 16:22 torch/distributed/elastic
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places.below(tmp_path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What training was started with; nothing is."""
    seen: dict[str, Any] = {}

    def train(words: list[str], host: dict[str, str], folder: Path, **more: Any) -> None:
        seen.update(words=words, host=host, **more)

    monkeypatch.setattr(step_ways.launch, "train", train)
    monkeypatch.setattr(step_ways, "read_steps", lambda *args, **more: steps(1.0))
    return seen


def _arguments(way: str, started: dict[str, Any], folder: Path, places: Places) -> list[str]:
    WAYS[way](JOB, folder / way, places)
    assert started["ranks"] == 2
    assert started["program"] == "benchmarks.recorded_steps"
    return started["words"]


def test_a_job_names_its_schedule() -> None:
    words = JOB.arguments()
    assert words[-2:] == ["--parallelism.pipeline_parallel_schedule", "LoopedBFS"]
    assert "LoopedBFS" not in dataclasses.replace(JOB, schedule=None).arguments()


def test_all_ways_share_the_job(started, tmp_path: Path, places: Places) -> None:
    shared = JOB.arguments()
    assert _arguments("ours", started, tmp_path, places) == JOB.precompiled(places.store, *STRICT)
    assert _arguments("eager", started, tmp_path, places) == JOB.eager()
    graph_pp = _arguments("graph_pp", started, tmp_path, places)
    assert graph_pp[: len(shared)] == shared
    assert "full" in graph_pp
    plain = _arguments("eager_plain", started, tmp_path, places)
    assert plain == dataclasses.replace(JOB, module=step_ways.PLAIN_MODULE).eager()


def test_only_graph_pp_may_compile(started, tmp_path: Path, places: Places) -> None:
    for way in WAYS:
        _arguments(way, started, tmp_path, places)
        bare = started["host"]["PATH"].startswith(str(tmp_path))
        shares = started["host"]["TORCHINDUCTOR_CACHE_DIR"] == str(places.cache)
        assert (bare, shares) == ((False, True) if way == "graph_pp" else (True, False)), way


@pytest.mark.parametrize(("output", "refused"), [(REFUSAL, True), ("out of memory", False)])
def test_only_its_own_refusal_counts_as_one(
    output: str, refused: bool, tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(words: list[str], host: dict[str, str], folder: Path, **more: Any) -> None:
        (folder / "train.txt").write_text(output)
        raise CommandError("exit code 1")

    monkeypatch.setattr(step_ways.launch, "train", train)
    expected = RefusedError if refused else CommandError
    with pytest.raises(expected) as error:
        WAYS["graph_pp"](JOB, tmp_path / "run", places)
    if refused:
        reason = "GraphPP currently requires a runtime PP schedule. Got GPipe."
        assert str(error.value) == reason
