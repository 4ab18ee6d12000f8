"""Three ranks share 256 rows: the last one has fewer, and needs programs of its own."""

from pathlib import Path

import pytest

from pp_precompile.contract.manifest import Manifest
from tests.e2e import launch
from tests.e2e.oracle import RELATIVE, gradients_of, largest_difference, same_gradients

pytestmark = pytest.mark.torchrun

RANKS = 3
JOB = ("--module", "tests.e2e.configs", "--config", "llama3_few_layers", "--debug.seed", "42")


def test_each_rank_loads_the_programs_for_its_shards(cache: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    stored = [*JOB, "--compile.precompile", "--compile.precompile_artifact_dir", str(store)]
    built = launch.build(
        [*stored, "--parallelism.data_parallel_shard_degree", str(RANKS)],
        launch.environment(cache),
    )
    assert built.code == 0, built.output
    (path,) = (store / "builds").iterdir()
    manifest = Manifest.from_bytes(path.read_bytes())
    assert [variant.columns for variant in manifest.variants] == [(2,)]

    eager = [*JOB, "--compile.mode", "None", "--compile.no-enable"]
    jobs = {"eager": eager, "warm": [*stored, "--compile.precompile_policy", "strict"]}
    runs = launch.train_cases(
        jobs, launch.fresh_host(tmp_path / "host"), tmp_path, ranks=RANKS, gradients=True
    )
    assert [runs["warm"].rank(rank)["ours"]["compiled"] for rank in range(RANKS)] == [0, 0, 0]
    assert runs["warm"].losses() == pytest.approx(runs["eager"].losses(), rel=1e-6)
    found, wanted = (gradients_of(tmp_path / name, RANKS) for name in ("warm", "eager"))
    worst = largest_difference(found, wanted)
    print(f"largest relative difference of a gradient {worst:.1e}")
    assert worst < RELATIVE

    live = launch.train(
        [*JOB, "--compile.precompile", "--compile.precompile_artifact_dir", str(tmp_path / "live")],
        launch.environment(cache),
        tmp_path / "run",
        ranks=RANKS,
        gradients=True,
    )
    assert live.code == 0, live.output
    assert runs["warm"].same_numbers(live)
    assert same_gradients(gradients_of(tmp_path / "run", RANKS), found)
    (published,) = (tmp_path / "live" / "builds").iterdir()
    assert published.read_bytes() == path.read_bytes()
