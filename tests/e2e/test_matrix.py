"""Model families under data, tensor and expert parallelism, with and without a pipeline.

Each job is compiled live on its ranks, built once more by a single process, and loaded from that
build on a host without a compiler; all are compared with the same mesh run eagerly, which starts
from the same weights.
"""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pp_precompile.contract.manifest import Manifest
from tests.e2e import launch
from tests.e2e.oracle import (
    EXPERTS_RELATIVE,
    RELATIVE,
    gradients_of,
    largest_difference,
    same_gradients,
    validation_losses,
)

pytestmark = pytest.mark.torchrun

RANKS = 4
TIMEOUT = 900
STRICT = ("--compile.precompile_policy", "strict")
EAGER = ("--compile.mode", "None", "--compile.no-enable")

Words = tuple[str, ...]


@dataclass(frozen=True)
class Mesh:
    """A job's degrees of parallelism; together four ranks."""

    config: str
    pipeline: int = 1
    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    expert: int = 1
    more: Words = ()

    def words(self, *extra: str) -> list[str]:
        degrees = {
            "pipeline_parallel_degree": self.pipeline,
            "data_parallel_replicate_degree": self.replicate,
            "data_parallel_shard_degree": self.shard,
            "tensor_parallel_degree": self.tensor,
            "expert_parallel_degree": self.expert,
        }
        words = ["--module", "tests.e2e.configs", "--config", self.config, "--debug.seed", "42"]
        for name, degree in degrees.items():
            words += [f"--parallelism.{name}", str(degree)]
        return [*words, *self.more, *extra]


VALIDATE = ("--validator.enable", "--validator.freq", "1", "--validator.steps", "1")

JOBS: dict[str, Mesh] = {
    "llama3, PP2 x TP2": Mesh("llama3_few_layers", pipeline=2, tensor=2, more=VALIDATE),
    "llama3, FSDP2 x TP2": Mesh("llama3_few_layers", shard=2, tensor=2),
    "llama3, HSDP 2 x 2": Mesh("llama3_few_layers", replicate=2, shard=2),
    "DeepSeek-V3, PP2 x FSDP2 x EP2": Mesh("deepseek_v3_few_layers", pipeline=2, shard=2, expert=2),
    "qwen3, PP4": Mesh("qwen3_few_layers", pipeline=4),
    "DeepSeek-V3, PP2 x TP2 x EP2": Mesh("deepseek_v3_few_layers", pipeline=2, tensor=2, expert=2),
    # A second layer of experts sees what bfloat16 rounded in the first: where two experts are
    # nearly equal, tokens would go to another one than in the eager model.
    "qwen3 with experts, PP2 x FSDP2": Mesh(
        "qwen3_moe_few_layers", pipeline=2, shard=2, more=("--debug.moe_force_load_balance",)
    ),
}

EXPERTS = {name for name, mesh in JOBS.items() if "deepseek" in mesh.config or "moe" in mesh.config}
"""The jobs whose experts compute in bfloat16."""

Runs = dict[str, launch.Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


def _stored(store: Path, *extra: str) -> Words:
    return ("--compile.precompile", "--compile.precompile_artifact_dir", str(store), *extra)


def _train(jobs: dict[str, list[str]], environment: dict[str, str], folder: Path) -> Runs:
    return launch.train_cases(
        jobs, environment, folder, ranks=RANKS, timeout=TIMEOUT, gradients=True
    )


@pytest.fixture(scope="module")
def eager(folder: Path, cache: Path) -> Runs:
    jobs = {name: mesh.words(*EAGER) for name, mesh in JOBS.items()}
    return _train(jobs, launch.environment(cache), folder / "eager")


@pytest.fixture(scope="module")
def live(folder: Path, cache: Path) -> Runs:
    """Each job compiling what it needs."""
    jobs = {name: mesh.words(*_stored(folder / "store")) for name, mesh in JOBS.items()}
    return _train(jobs, launch.environment(cache), folder / "live")


@pytest.fixture(scope="module")
def built(folder: Path, cache: Path, live: Runs) -> Path:
    """A store with the programs of the live jobs, whose builds are made by a single process."""
    assert live
    store = folder / "built"
    shutil.copytree(folder / "store", store)
    for path in (store / "builds").iterdir():
        path.unlink()
    jobs = {name: mesh.words(*_stored(store)) for name, mesh in JOBS.items()}
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "tests.e2e.build_cases", str(folder / "jobs.json")]
    result = launch.run(command, launch.environment(cache), timeout=TIMEOUT)
    assert result.code == 0, result.output
    return store


@pytest.fixture(scope="module")
def warm(folder: Path, built: Path) -> Runs:
    """Each job from the build of a single process, on a host with empty caches and no compiler."""
    jobs = {name: mesh.words(*_stored(built, *STRICT)) for name, mesh in JOBS.items()}
    return _train(jobs, launch.fresh_host(folder / "host"), folder / "warm")


@pytest.mark.parametrize("name", JOBS)
def test_losses_and_gradients_agree_with_the_eager_mesh(
    name: str, eager: Runs, warm: Runs, folder: Path
) -> None:
    relative = 1e-5 if name in EXPERTS else 1e-6
    assert warm[name].losses() == pytest.approx(eager[name].losses(), rel=relative)
    found, wanted = (gradients_of(folder / kind / name, RANKS) for kind in ("warm", "eager"))
    worst = largest_difference(found, wanted)
    print(f"{name}: largest relative difference of a gradient {worst:.1e}")
    assert worst < (EXPERTS_RELATIVE if name in EXPERTS else RELATIVE)


@pytest.mark.parametrize("name", JOBS)
def test_loaded_programs_give_bitwise_what_they_gave_when_compiled(
    name: str, live: Runs, warm: Runs, folder: Path
) -> None:
    assert warm[name].same_numbers(live[name])
    one, other = (gradients_of(folder / kind / name, RANKS) for kind in ("live", "warm"))
    assert same_gradients(one, other)
    for rank in range(RANKS):
        assert warm[name].rank(rank)["ours"]["compiled"] == 0
        assert warm[name].compiler_counts(rank) == {}


def test_validation_agrees_with_the_eager_mesh(eager: Runs, warm: Runs) -> None:
    name = "llama3, PP2 x TP2"  # the only job that validates: all jobs share one output
    found, expected = (validation_losses(runs[name]) for runs in (warm, eager))
    # Both ranks of the last stage log a loss after each of two steps.
    assert len(found) == len(expected) == 4
    assert found == pytest.approx(expected, rel=1e-4)  # logged with five digits


def test_a_single_process_makes_the_builds_that_the_ranks_make(
    live: Runs, built: Path, folder: Path
) -> None:
    assert live
    ranks = {path.name: path.read_bytes() for path in (folder / "store" / "builds").iterdir()}
    single = {path.name: path.read_bytes() for path in (built / "builds").iterdir()}
    assert len(single) == len(JOBS)
    assert single == ranks
    # DTensor cuts replicated tensors apart within these programs: each tensor-parallel rank has
    # its own.
    manifests = [Manifest.from_bytes(data) for data in single.values()]
    cut = [m for m in manifests if m.mesh.size("tp") > 1 and m.mesh.experts > 1]
    assert [v.columns for m in cut for v in m.variants] == [(1,)]
    assert all(not m.variants for m in manifests if m not in cut)
