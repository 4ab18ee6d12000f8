"""Data parallelism inside a pipeline, gathering for each microbatch or once a step.

All jobs start from one checkpoint, and are compared with the same mesh run eagerly.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from pp_precompile.contract.manifest import Manifest
from tests.e2e import launch
from tests.e2e.conftest import few_layers_arguments as arguments
from tests.e2e.oracle import RELATIVE, Gradients, gradients_of, largest_difference, same_gradients
from tests.e2e.planned import check_held, planned

pytestmark = pytest.mark.torchrun

STRICT = ("--compile.precompile_policy", "strict")
TIMEOUT = 900

RESHARD = "--parallelism.fsdp_reshard_after_forward"
SPLIT = ("--parallelism.pipeline_parallel_schedule", "ZBVZeroBubble")
REPLICATE = (
    *("--parallelism.data_parallel_replicate_degree", "2"),
    *("--parallelism.data_parallel_shard_degree", "1"),
)

Words = tuple[str, ...]

IN_PIPELINE: dict[str, Words] = {
    "FSDP, once": (),
    "FSDP, always": (RESHARD, "always"),
    "FSDP, once, split": SPLIT,
    "replicate, once": REPLICATE,
}
"""On four ranks, PP2 and data parallelism of 2."""

ALONE: dict[str, Words] = {
    "FSDP, no pipeline, once": (RESHARD, "never"),
}
"""On two ranks without a pipeline."""

EAGER: dict[str, Words] = {"eager FSDP": (), "eager replicate": REPLICATE}

OF_JOB: dict[str, Callable[[Manifest], bool]] = {
    "FSDP, once": lambda build: _has(build, shard=2, schedule="1F1B", roles={"unshard"}),
    "FSDP, always": lambda build: _has(build, shard=2, schedule="1F1B", roles=set()),
    "FSDP, once, split": lambda build: _has(build, shard=2, schedule="ZBVZeroBubble"),
    "replicate, once": lambda build: _has(build, shard=1, schedule="1F1B"),
}
"""Which build in the store is that of a job in a pipeline."""

Runs = dict[str, launch.Result]
Jobs = dict[str, list[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gather")


@pytest.fixture(scope="module")
def live(folder: Path, cache: Path, few_layers_seed: list[str]) -> Runs:
    """Each job compiling what it needs, and the eager ones."""
    environment, extra = launch.environment(cache), few_layers_seed
    store = folder / "store"
    jobs = {name: arguments(2, store, *w, *extra) for name, w in IN_PIPELINE.items()}
    jobs |= {name: arguments(2, None, *w, *extra) for name, w in EAGER.items()}
    alone = {name: arguments(1, store, *w, *extra) for name, w in ALONE.items()}
    alone["eager FSDP, no pipeline"] = arguments(1, None, *extra)
    return _train(jobs, alone, environment, folder / "live")


@pytest.fixture(scope="module")
def warm(folder: Path, live: Runs, few_layers_seed: list[str]) -> Runs:
    """Each job again, on a host with empty caches and no compiler."""
    assert live
    store, extra = folder / "store", (*STRICT, *few_layers_seed)
    jobs = {name: arguments(2, store, *w, *extra) for name, w in IN_PIPELINE.items()}
    alone = {name: arguments(1, store, *w, *extra) for name, w in ALONE.items()}
    environment = launch.fresh_host(folder / "host") | {"RECORD_HELD": "1"}
    return _train(jobs, alone, environment, folder / "warm")


def _train(four: Jobs, two: Jobs, environment: dict[str, str], folder: Path) -> Runs:
    return launch.train_cases_on({4: four, 2: two}, environment, folder, timeout=TIMEOUT)


def _has(build: Manifest, *, shard: int, schedule: str, roles: set[str] | None = None) -> bool:
    """Tell a build by its mesh, its schedule and, if they matter, programs for once a step."""
    once = {"unshard"} & build.stages[0].programs.keys()
    sizes = (build.mesh.size("pp"), build.mesh.size("dp_shard"))
    return (
        sizes == (2, shard) and build.schedule.name == schedule and (roles is None or once == roles)
    )


def _ranks(name: str) -> int:
    return 4 if name in IN_PIPELINE or name in EAGER else 2


def _gradients(folder: Path, kind: str, name: str) -> Gradients:
    return gradients_of(folder / kind / name, _ranks(name))


@pytest.mark.parametrize(
    ("name", "eager"),
    [
        ("FSDP, once", "eager FSDP"),
        ("FSDP, always", "eager FSDP"),
        ("FSDP, once, split", "eager FSDP"),
        ("replicate, once", "eager replicate"),
        ("FSDP, no pipeline, once", "eager FSDP, no pipeline"),
    ],
)
def test_losses_and_gradients_agree_with_the_eager_mesh(
    name: str, eager: str, live: Runs, warm: Runs, folder: Path
) -> None:
    assert warm[name].losses() == pytest.approx(live[eager].losses(), rel=1e-6)
    found, wanted = _gradients(folder, "warm", name), _gradients(folder, "live", eager)
    worst = largest_difference(found, wanted)
    print(f"{name}: largest relative difference of a gradient {worst:.1e}")
    assert worst < RELATIVE


@pytest.mark.parametrize("name", [*IN_PIPELINE, *ALONE])
def test_loaded_programs_give_bitwise_what_they_gave_when_compiled(
    name: str, live: Runs, warm: Runs, folder: Path
) -> None:
    assert warm[name].same_numbers(live[name])
    assert same_gradients(_gradients(folder, "live", name), _gradients(folder, "warm", name))
    for rank in range(_ranks(name)):
        assert warm[name].rank(rank)["ours"]["compiled"] == 0
        assert warm[name].compiler_counts(rank) == {}


def test_each_way_has_the_programs_that_it_needs(warm: Runs) -> None:
    def loaded(name: str) -> list[int]:
        return [warm[name].rank(rank)["ours"]["loaded"] for rank in range(_ranks(name))]

    # Forward, backward and the last stage's loss; gathered once, two more.
    assert loaded("FSDP, always") == [2, 2, 3, 3]
    assert loaded("FSDP, once") == [4, 4, 5, 5]
    assert loaded("replicate, once") == [3, 3, 4, 4]
    assert loaded("FSDP, no pipeline, once") == [5, 5]


@pytest.mark.parametrize("name", IN_PIPELINE)
def test_ranks_hold_exactly_what_the_plan_says(name: str, folder: Path, warm: Runs) -> None:
    plan, _ = planned(folder / "store", OF_JOB[name])
    check_held(warm[name], plan)
