"""graph_trainer's step graph from a store, without a pipeline, with sharded parameters."""

from pathlib import Path

import pytest

from pp_precompile.cli.main import main
from pp_precompile.graph.check import check_build
from pp_precompile.store.store import open_store
from pp_precompile.titan import private_graph_pp
from tests.e2e import launch
from tests.e2e.conftest import FEW_LAYERS, arguments
from tests.e2e.test_graph_pp import ENGINE, EXPERTS, STRICT

pytestmark = pytest.mark.torchrun

SHARDED = ("--parallelism.data_parallel_shard_degree", "2")
REPLICATED = ("--parallelism.data_parallel_replicate_degree", "2")

Words = tuple[str, ...]

CASES: dict[str, tuple[Words, Words]] = {
    # Whole graphs, and gradients added up over two microbatches.
    "sharded": (
        FEW_LAYERS,
        (
            *SHARDED,
            *("--compile.inductor_compilation", "full"),
            *("--training.local_batch_size", "2", "--training.global_batch_size", "8"),
        ),
    ),
    # Buffers that change, without Inductor.
    "replicated experts": (EXPERTS, (*REPLICATED, "--compile.inductor_compilation", "regional")),
}

Runs = dict[str, launch.Result]


def job(store: Path, name: str, *extra: str) -> list[str]:
    model, words = CASES[name]
    return arguments(1, store, *ENGINE, *words, *extra, model=model)


def without_us(name: str) -> list[str]:
    """The same job as torchtitan runs it, with the passes off that need a GPU."""
    model, words = CASES[name]
    all_words = arguments(1, None, *words, model=model)
    off = all_words.index("--compile.mode")
    del all_words[off : off + 3]
    return [
        *all_words,
        *("--compile.disable_passes", ",".join(private_graph_pp.NOT_ON_A_CPU)),
        # Another rank's first step waits for this one's compilation.
        *("--comm.init_timeout_seconds", "300"),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graph_step")


@pytest.fixture(scope="module")
def store(folder: Path) -> Path:
    return folder / "store"


@pytest.fixture(scope="module")
def cold(cache: Path, folder: Path, store: Path) -> Runs:
    """Jobs that find no build, compile, and store what they compiled."""
    cases = {name: job(store, name) for name in CASES}
    return launch.train_cases(cases, launch.environment(cache), folder / "cold", ranks=2)


@pytest.fixture(scope="module")
def warm(cold: Runs, folder: Path, store: Path) -> Runs:
    """The same jobs on a fresh host without a compiler, which may not compile."""
    cases = {name: job(store, name, *STRICT) for name in CASES}
    return launch.train_cases(cases, launch.fresh_host(folder / "host"), folder / "warm", ranks=2)


@pytest.fixture(scope="module")
def plain(cache: Path, folder: Path) -> Runs:
    """graph_trainer without a store."""
    cases = {name: without_us(name) for name in CASES}
    return launch.train_cases(cases, launch.environment(cache), folder / "plain", ranks=2)


@pytest.mark.parametrize("name", CASES)
def test_loaded_is_compiled_is_torchtitans_own(
    name: str, cold: Runs, warm: Runs, plain: Runs
) -> None:
    assert len(cold[name].losses()) == 2
    assert warm[name].same_numbers(cold[name])
    assert plain[name].same_numbers(cold[name])
    assert all(plain[name].rank(rank)["ours"]["loaded"] == 0 for rank in range(2))


@pytest.mark.parametrize("name", CASES)
def test_a_warm_start_compiles_nothing(name: str, cold: Runs, warm: Runs) -> None:
    assert sum(cold[name].rank(rank)["ours"]["compiled"] for rank in range(2)) == 1
    for rank in range(2):
        record = warm[name].rank(rank)
        assert record["ours"]["compiled"] == 0
        assert record["ours"]["loaded"] == 1
        assert warm[name].compiler_counts(rank) == {}
        assert set(record["commands"]).isdisjoint(launch.COMPILERS)


def test_the_only_program_is_a_whole_step(cold: Runs, store: Path) -> None:
    builds = open_store(store, create=False).builds
    for build in builds.ids():
        manifest = builds.read(build)
        assert check_build(manifest) == []
        [stage] = manifest.stages
        assert list(stage.programs) == ["forward"]
        assert stage.returns_loss
        assert stage.returns_gradients
    assert len(builds.ids()) == len(CASES)


def test_a_build_without_ranks_stores_the_same_bytes(
    cold: Runs, cache: Path, store: Path, tmp_path: Path
) -> None:
    result = launch.build(job(tmp_path / "store", "sharded"), launch.environment(cache))
    assert result.code == 0, result.output
    offline, online = dict(launch.files(tmp_path / "store")), dict(launch.files(store))
    assert [name for name in offline if offline[name] != online.get(name)] == []


def test_other_commands_read_such_a_store(
    cold: Runs, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = next(iter(open_store(store, create=False).builds.ids()))
    for words in (["validate"], ["ls"], ["show"], ["fsck"], ["plan"], ["compare"]):
        picked = [build] if words[0] == "compare" else ["--build", build]
        picked = [] if words[0] in ("validate", "ls", "fsck") else picked
        assert main([*words, str(store), *picked]) == 0, capsys.readouterr()
