"""torchtitan's GraphPP from a store: built once, then loaded where there is no compiler."""

import shutil
import stat
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pp_precompile.cli.main import main
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.schedule import parse_actions
from pp_precompile.store.store import open_store
from tests.e2e import launch
from tests.e2e.conftest import FEW_LAYERS, arguments
from tests.graph_pp_runs import needs_graph_pp

pytestmark = [pytest.mark.torchrun, needs_graph_pp]

ENGINE = ("--compile.precompile_engine", "graph_pp")
STRICT = ("--compile.precompile_policy", "strict")
EXPERTS = ("--module", "tests.e2e.configs", "--config", "qwen3_moe_few_layers")


class Case(NamedTuple):
    """A job: its model, its schedule, and how much of its graphs Inductor compiles."""

    model: tuple[str, ...]
    schedule: str
    inductor: str


CASES = {
    "interleaved": Case(FEW_LAYERS, "Interleaved1F1B", "full"),
    "zbv": Case(EXPERTS, "ZBVZeroBubble", "regional"),
    "dualpipev": Case(FEW_LAYERS, "DualPipeV", "full"),
}
"""Whole backwards; backwards in two parts, with buffers that change; both, with overlaps."""


def job(store: Path, name: str, *extra: str) -> list[str]:
    return arguments(2, store, *ENGINE, *_own(name), *extra, model=CASES[name].model)


def without_us(name: str) -> list[str]:
    """The same job as torchtitan runs it, with the pass off that needs a GPU."""
    words = arguments(2, None, *_own(name), model=CASES[name].model)
    off = words.index("--compile.mode")
    del words[off : off + 3]
    return [
        *words,
        *("--compile.disable_passes", "joint_transformer_block_bucketing_reordering_pass"),
        # Another rank's first step waits for this one's compilation.
        *("--comm.init_timeout_seconds", "300"),
    ]


def _own(name: str) -> tuple[str, ...]:
    return (
        *("--parallelism.pipeline_parallel_schedule", CASES[name].schedule),
        *("--compile.inductor_compilation", CASES[name].inductor),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graph_pp")


@pytest.fixture(scope="module")
def store(folder: Path) -> Path:
    return folder / "store"


@pytest.fixture(scope="module")
def cold(cache: Path, folder: Path, store: Path) -> dict[str, launch.Result]:
    """Jobs that find no build, compile, and store what they compiled."""
    cases = {name: job(store, name) for name in CASES}
    return launch.train_cases(cases, launch.environment(cache), folder / "cold", ranks=2)


@pytest.fixture(scope="module")
def warm(cold: dict[str, launch.Result], folder: Path, store: Path) -> dict[str, launch.Result]:
    """The same jobs on a fresh host without a compiler, which may not compile."""
    cases = {name: job(store, name, *STRICT) for name in CASES}
    host = launch.fresh_host(folder / "host")
    return launch.train_cases(cases, host, folder / "warm", ranks=2)


@pytest.fixture(scope="module")
def plain(cache: Path, folder: Path) -> dict[str, launch.Result]:
    """GraphPP without a store."""
    cases = {name: without_us(name) for name in CASES}
    return launch.train_cases(cases, launch.environment(cache), folder / "plain", ranks=2)


@pytest.mark.parametrize("name", CASES)
def test_loaded_is_compiled_is_torchtitans_own(
    name: str,
    cold: dict[str, launch.Result],
    warm: dict[str, launch.Result],
    plain: dict[str, launch.Result],
) -> None:
    assert len(cold[name].losses()) == 2
    assert warm[name].same_numbers(cold[name])
    assert plain[name].same_numbers(cold[name])
    assert all(plain[name].rank(rank)["ours"]["loaded"] == 0 for rank in range(2))


@pytest.mark.parametrize("name", CASES)
def test_a_warm_start_compiles_nothing(
    name: str, cold: dict[str, launch.Result], warm: dict[str, launch.Result]
) -> None:
    for rank in range(2):
        record = warm[name].rank(rank)
        assert record["ours"]["compiled"] == 0
        assert record["ours"]["loaded"] > 0
        assert warm[name].compiler_counts(rank) == {}
        assert set(record["commands"]).isdisjoint(launch.COMPILERS)
    assert sum(cold[name].rank(rank)["ours"]["compiled"] for rank in range(2)) > 0
    # The same counters do count when something is compiled: not where Inductor compiles only what
    # torchtitan marks, since it marks nothing in this model.
    counted = any(cold[name].compiler_counts(rank) for rank in range(2))
    assert counted == (CASES[name].inductor == "full")


@pytest.mark.parametrize("name", CASES)
def test_a_build_holds_what_its_schedule_runs(
    name: str, cold: dict[str, launch.Result], store: Path
) -> None:
    manifest = open_store(store, create=False).builds.read(_build(store, name))
    kinds = {a.kind for row in manifest.schedule.actions for t in row for a in parse_actions(t)}
    for stage in manifest.stages:
        roles = set(stage.programs)
        assert ("overlap" in roles) == (name == "dualpipev")
        assert ("backward_input" in roles) == ("I" in kinds and stage.index > 0)
        assert stage.returns_loss == (stage.index == 3)
    # The two stages in the middle are alike, and share their programs.
    one, other = manifest.stages[1], manifest.stages[2]
    assert all(
        one.programs[role].key == other.programs[role].key
        for role in one.programs
        if role != "overlap"
    )
    compiled = CASES[name].inductor == "full"
    assert {p.kernels > 0 for p in one.programs.values()} == {compiled}


def test_a_build_without_ranks_stores_the_same_bytes(
    cold: dict[str, launch.Result], cache: Path, store: Path, tmp_path: Path
) -> None:
    result = launch.build(job(tmp_path / "store", "dualpipev"), launch.environment(cache))
    assert result.code == 0, result.output
    offline, online = dict(launch.files(tmp_path / "store")), dict(launch.files(store))
    assert [name for name in offline if offline[name] != online.get(name)] == []


def test_other_commands_read_such_a_store(
    cold: dict[str, launch.Result], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["validate"], ["ls"], ["show"], ["fsck"], ["du"], ["plan"]):
        picked = ["--build", _build(store, "dualpipev")] if words[0] in ("show", "plan") else []
        assert main([*words, str(store), *picked]) == 0, capsys.readouterr()
    assert "overlap" in capsys.readouterr().out


def test_such_stores_hold_nothing_of_host_or_path(
    cold: dict[str, launch.Result], cache: Path, store: Path
) -> None:
    secrets = (str(cache), str(launch.ROOT), sys.prefix, str(Path.home()), "/tmp/", "site-packages")
    found = [
        (secret, name)
        for name, content in launch.files(store)
        for secret in secrets
        if len(secret) > 3 and secret.encode() in content
    ]
    assert found == []


def _build(store: Path, name: str) -> Digest:
    builds = open_store(store, create=False).builds
    schedule = CASES[name].schedule
    return next(b for b in builds.ids() if builds.read(b).schedule.name == schedule)


def test_a_damaged_program_is_refused_before_anything_is_unpickled(
    cold: dict[str, launch.Result], cache: Path, store: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(store, tmp_path / "store"))
    build = open_store(copy, create=False).builds.read(_build(copy, "interleaved"))
    ref = build.stages[0].programs["forward"].blob
    [victim] = (copy / "blobs").rglob(f"*{ref.digest[:16]}*")
    # Whoever unpickled this would end with its code.
    victim.chmod(victim.stat().st_mode | stat.S_IWUSR)
    bomb = b"cos\n_exit\n(I77\ntR."
    victim.write_bytes(bomb + victim.read_bytes()[len(bomb) :])
    words = job(copy, "interleaved", *STRICT)
    result = launch.train(words, launch.environment(cache), tmp_path / "run", ranks=2)
    assert [result.rank(rank)["code"] for rank in range(2)] == [1, 1], result.output
    assert "PPC204" in result.output
    assert result.own_output.count("\nPPC101: ") == 2
    assert all(result.rank(rank)["ours"]["loaded"] == 0 for rank in range(2))


def test_another_pass_is_another_build(
    cold: dict[str, launch.Result], cache: Path, store: Path, tmp_path: Path
) -> None:
    words = job(store, "interleaved", *STRICT, "--compile.memory_policy", "full")
    result = launch.train(words, launch.environment(cache), tmp_path / "run", ranks=2)
    assert [result.rank(rank)["code"] for rank in range(2)] == [1, 1], result.output
    assert result.own_output.count("\nPPC101: ") == 2
    assert 'compile.memory_policy: "default" there, "full" here' in result.output
    assert all(result.rank(rank)["ours"]["compiled"] == 0 for rank in range(2))
