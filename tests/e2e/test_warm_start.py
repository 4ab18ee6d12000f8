"""A PP4 job starts warm from self-contained stage artifacts, on a host without a compiler."""

import json
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pp_precompile.graph.plan import BuildPlan, plan_of
from pp_precompile.store.store import open_store
from tests.e2e import launch
from tests.e2e.conftest import arguments

pytestmark = pytest.mark.torchrun

STRICT = ("--compile.precompile_policy", "strict")
LONG_AGO = 1_000_000_000.0
TENSORBOARD = ("--metrics.enable_tensorboard", "--metrics.save_for_all_ranks")


def test_build_reports_every_stage(built: Path) -> None:
    output = (built.parent / "output.txt").read_text()
    for text in ("stage 0 forward: compiled", "stage 3 loss: compiled", "layers.5 norm lm_head"):
        assert text in output
    # Stages 1 and 2 have the same structure: the second takes the first one's programs.
    assert "stage 2 forward: reused" in output


def test_both_ways_of_building_store_the_same_bytes(
    built: Path, trained: tuple[launch.Result, Path]
) -> None:
    offline, online = dict(launch.files(built)), dict(launch.files(trained[1]))
    assert offline.keys() == online.keys()
    assert [name for name in offline if offline[name] != online[name]] == []


def test_another_loss_compiles_the_program_of_the_loss_alone(
    built: Path, cache: Path, tmp_path: Path
) -> None:
    store = shutil.copytree(built, tmp_path / "store")
    other = ("--module", "tests.e2e.configs", "--config", "llama3_halved_loss", "--jobs", "2")
    result = launch.build(arguments(4, store, *other), launch.environment(cache))
    assert result.code == 0, result.output
    assert re.findall(r"(stage \d \w+): compiled in", result.output) == ["stage 3 loss"]
    assert result.output.count(": reused in") == 8
    builds = open_store(store, create=False).builds
    assert len(builds.ids()) == 2
    one, other_blobs = (set(builds.read(build).blobs()) for build in builds.ids())
    assert (len(one), len(other_blobs), len(one | other_blobs)) == (7, 7, 8)


def test_on_the_fly_compiles_each_distinct_program_once(
    trained: tuple[launch.Result, Path],
) -> None:
    compiled = [trained[0].rank(rank)["ours"]["compiled"] for rank in range(4)]
    assert compiled == [2, 2, 0, 3]


def test_a_dry_run_needs_no_compiler_and_finds_what_was_built(
    built: Path, fresh_host: dict[str, str]
) -> None:
    before = dict(launch.files(built))
    result = launch.build(arguments(4, built, "--dry-run", "--json"), fresh_host)
    assert result.code == 0, result.output
    found = json.loads(result.output[result.output.index("{\n") :])
    assert (found["published"], found["compile"], found["stored"]) == (True, 0, 7)
    builds = open_store(built, create=False).builds
    manifest = builds.read(found["plan"]["build"])
    planned = msgspec.convert(found["plan"], BuildPlan)
    assert planned == plan_of(manifest).against(lambda key: True)
    assert dict(launch.files(built)) == before


@pytest.fixture(scope="module")
def warm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warm")


@pytest.fixture(scope="module")
def warm(built: Path, warm_folder: Path) -> launch.Result:
    folder = warm_folder
    environment = launch.fresh_host(folder / "host")
    builds = open_store(built, create=False).builds
    for build in builds.ids():
        os.utime(builds.path(build), (LONG_AGO, LONG_AGO))
    job = arguments(4, built, *STRICT, *TENSORBOARD)
    result = launch.train(job, environment, folder / "run", ranks=4)
    assert result.code == 0, result.output
    return result


def test_warm_equals_compiled_bitwise(
    warm: launch.Result, trained: tuple[launch.Result, Path]
) -> None:
    assert len(warm.losses()) == 3
    assert warm.same_numbers(trained[0])


def test_a_job_that_loads_a_build_uses_it(warm: launch.Result, built: Path) -> None:
    """So that a collector that goes by age leaves it."""
    [used] = [item.used for item in open_store(built, create=False).builds.items().values()]
    assert used > LONG_AGO


def test_warm_compiles_nothing(warm: launch.Result, trained: tuple[launch.Result, Path]) -> None:
    loaded = {}
    for rank in range(4):
        record = warm.rank(rank)
        loaded[rank] = record["ours"]["loaded"]
        assert record["ours"]["compiled"] == 0
        assert warm.compiler_counts(rank) == {}
        assert set(record["commands"]).isdisjoint(launch.COMPILERS)
    # Each rank loads its own stage's programs and no other.
    assert loaded == {0: 2, 1: 2, 2: 2, 3: 3}
    # The same counters do count when something is compiled.
    assert "strip" in trained[0].rank(0)["commands"]
    assert trained[0].compiler_counts(0) != {}


def test_spans_and_counters_are_in_torchtitans_structured_log(
    warm: launch.Result, warm_folder: Path
) -> None:
    logs = sorted((warm_folder / "run" / "dump" / "structured_logs").glob("*.jsonl"))
    assert len(logs) == 4
    for log in logs:
        text = log.read_text()
        for span in ("acquire", "validate", "wait", "load"):
            assert f"precompile_{span}_start" in text
        for counter in ("hits", "misses", "programs_loaded", "bytes_loaded"):
            assert f"precompile_{counter}" in text
        assert "precompile_build_start" not in text


def test_tensorboard_gets_every_ranks_start(warm: launch.Result, warm_folder: Path) -> None:
    for rank, programs in enumerate((2, 2, 2, 3)):
        (folder,) = (warm_folder / "run" / "dump").rglob(f"rank_{rank}")
        events = EventAccumulator(str(folder))
        events.Reload()
        shown = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
        start = {tag: found for tag, found in shown.items() if tag.startswith("precompile/")}
        assert {(len(found), found[0].step) for found in start.values()} == {(1, 1)}
        assert start["precompile/programs_loaded"][0].value == programs
        assert start["precompile/programs_compiled"][0].value == 0
        assert start["precompile/load(s)"][0].value > 0
        assert start["precompile/build(s)"][0].value < start["precompile/imports(s)"][0].value
        # torchtitan's own metrics of the step are there as ever.
        assert [found.step for found in shown["grad_norm"]] == [1, 2, 3]


def test_stores_hold_nothing_of_host_rank_or_path(built: Path, cache: Path) -> None:
    import getpass
    import socket
    import sys

    secrets = {
        *(str(cache), str(launch.ROOT), sys.prefix, str(Path.home()), "/tmp/", "/usr/include"),
        *(socket.gethostname(), f"/{getpass.getuser()}/", "site-packages", "mesh_pp", "mesh_fsdp"),
    }
    found = [
        (secret, name)
        for name, content in launch.files(built)
        for secret in secrets
        if len(secret) > 3 and secret.encode() in content
    ]
    assert found == []
