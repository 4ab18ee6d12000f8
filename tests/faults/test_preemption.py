"""Jobs and builds that are killed at any moment, and go on warm as if nothing had happened."""

import random
import shutil
import sys
from pathlib import Path

import pytest

from pp_precompile.store.fsck import check_store
from pp_precompile.store.store import open_store
from tests.e2e import launch
from tests.e2e.conftest import arguments, few_layers_arguments
from tests.faults.killing import run_until_killed

pytestmark = pytest.mark.torchrun

QWEN3 = ("--module", "tests.e2e.configs", "--config", "qwen3_few_layers")
STRICT = ("--compile.precompile_policy", "strict")
STEPS, INTERVAL = 6, 2

BUILD = "import sys; from pp_precompile.cli import main; sys.exit(main(sys.argv[1:]))"


def job(store: Path, dump: Path) -> list[str]:
    """Return a strict PP4 job that saves checkpoints."""
    return arguments(
        4,
        store,
        *STRICT,
        *("--training.steps", str(STEPS), "--dump_folder", str(dump)),
        *("--checkpoint.enable", "--checkpoint.interval", str(INTERVAL)),
        "--checkpoint.no-last-save-model-only",
        model=QWEN3,
    )


def torchrun(words: list[str], ranks: int) -> list[str]:
    return launch.torchrun("-m", "tests.e2e.record", *words, ranks=ranks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("preemption")


@pytest.fixture(scope="module")
def built(folder: Path, cache: Path) -> Path:
    """A store with the PP4 job."""
    result = launch.build(arguments(4, folder / "store", model=QWEN3), launch.environment(cache))
    assert result.code == 0, result.output
    return folder / "store"


def test_killed_at_a_random_step_and_restarted_on_another_host(
    built: Path, folder: Path, tmp_path: Path
) -> None:
    step = random.Random(6).randint(INTERVAL + 1, STEPS - 1)
    whole = launch.train(
        job(built, tmp_path / "whole"), launch.fresh_host(tmp_path / "one"), folder / "w", ranks=4
    )
    assert whole.code == 0, whole.output
    host = launch.fresh_host(tmp_path / "two") | {"RECORD": str(folder / "killed")}
    run_until_killed(
        torchrun(job(built, tmp_path / "dump"), 4),
        host,
        tmp_path / "killed.txt",
        when=rf"step:\s*{step}\b",
    )
    saved = sorted(path.name for path in (tmp_path / "dump" / "checkpoint").glob("step-*"))
    assert f"step-{INTERVAL}" in saved

    elsewhere = Path(shutil.copytree(built, tmp_path / "copy"))
    again = launch.train(
        job(elsewhere, tmp_path / "dump"),
        launch.fresh_host(tmp_path / "three"),
        folder / "again",
        ranks=4,
    )
    assert again.code == 0, again.output
    done = len(again.losses())
    assert 0 < done <= STEPS - INTERVAL
    assert again.losses() == whole.losses()[-done:]
    assert all(again.rank(rank)["ours"]["compiled"] == 0 for rank in range(4))
    assert all(again.compiler_counts(rank) == {} for rank in range(4))


def test_killed_while_building_then_finished_by_a_rerun(
    built: Path, cache: Path, tmp_path: Path
) -> None:
    words = arguments(4, tmp_path / "store", model=QWEN3)
    command = [sys.executable, "-c", BUILD, "build", *words, "--jobs", "2"]
    killed = run_until_killed(
        command,
        launch.environment(cache),
        tmp_path / "killed.txt",
        when=r"(?s)(compiled in.*){2}",
    )
    store = open_store(tmp_path / "store", create=False)
    assert store.builds.ids() == []
    health = check_store(store)
    assert health.sound
    compiled = killed.count(": compiled in")
    assert health.entries >= compiled > 1
    # With another number of processes, and then the bytes of a build in a single one.
    rerun = launch.build([*words, "--jobs", "3"], launch.environment(cache))
    assert rerun.code == 0, rerun.output
    assert rerun.output.count(": reused in") >= compiled
    reference = open_store(built, create=False)
    [build] = reference.builds.ids()
    assert store.builds.raw(build) == reference.builds.raw(build)


def test_killed_while_publishing_and_while_loading(cache: Path, tmp_path: Path) -> None:
    words = few_layers_arguments(2, tmp_path / "store", "--training.steps", "2")
    environment = launch.environment(cache)
    dead = launch.train(
        words, environment | {"FAULT": "killed_publishing:0"}, tmp_path / "a", ranks=2
    )
    assert dead.code != 0
    store = open_store(tmp_path / "store", create=False)
    assert store.builds.ids() == []
    assert check_store(store).sound

    rerun = launch.train(words, environment, tmp_path / "b", ranks=2)
    assert rerun.code == 0, rerun.output
    assert all(rerun.rank(rank)["ours"]["compiled"] == 0 for rank in range(2))
    assert sum(rerun.rank(rank)["ours"]["reused"] for rank in range(2)) > 0

    before = dict(launch.files(tmp_path / "store"))
    dead = launch.train(
        [*words, *STRICT], environment | {"FAULT": "killed_loading:1"}, tmp_path / "c", ranks=2
    )
    assert dead.code != 0
    assert dict(launch.files(tmp_path / "store")) == before
    again = launch.train([*words, *STRICT], environment, tmp_path / "d", ranks=2)
    assert again.same_numbers(rerun)


def test_fewer_ranks_after_a_preemption(cache: Path, tmp_path: Path) -> None:
    """Data parallelism shrinks: the build of that mesh is chosen, or its absence is explained."""
    store = tmp_path / "store"
    shard = "--parallelism.data_parallel_shard_degree"
    saving = (
        *("--dump_folder", str(tmp_path / "dump"), "--checkpoint.enable"),
        *("--checkpoint.interval", "2", "--checkpoint.no-last-save-model-only"),
        # torchtitan's dataloader goes on only with as many data-parallel ranks as it had.
        *("--checkpoint.exclude-from-loading", "dataloader"),
    )
    four, two = ((*saving, shard, degree) for degree in ("2", "1"))
    environment = launch.environment(cache)
    words = few_layers_arguments(2, store, *four, "--training.steps", "2")
    first = launch.train(words, environment, tmp_path / "four", ranks=4)
    assert first.code == 0, first.output

    fewer = few_layers_arguments(2, store, *two, "--training.steps", "4")
    refused = launch.train([*fewer, *STRICT], environment, tmp_path / "refused", ranks=2)
    assert refused.code != 0
    assert "PPC101" in refused.own_output
    assert "mesh: " in refused.own_output, refused.own_output[-4000:]

    assert launch.build(fewer, environment).code == 0
    host = launch.fresh_host(tmp_path / "host")
    again = launch.train([*fewer, *STRICT], host, tmp_path / "two", ranks=2)
    assert again.code == 0, again.output
    assert len(again.losses()) == 2
    assert again.losses()[0] < first.losses()[0]
    assert all(again.compiler_counts(rank) == {} for rank in range(2))
    # And with the ranks back, the build of before.
    more = few_layers_arguments(2, store, *four, "--training.steps", "6", *STRICT)
    back = launch.train(more, launch.fresh_host(tmp_path / "back"), tmp_path / "more", ranks=4)
    assert back.code == 0, back.output
    assert len(back.losses()) == 2
