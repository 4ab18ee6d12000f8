"""Other jobs through the same code: no pipeline, chunked loss, validation."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import launch
from tests.e2e.conftest import SEED, arguments

pytestmark = pytest.mark.torchrun

STRICT = ("--compile.precompile_policy", "strict")
CHUNKED = ("--module", "tests.e2e.configs", "--config", "llama3_chunked_loss")


def _cold_then_warm(
    words: Callable[..., list[str]], ranks: int, cache: Path, folder: Path
) -> tuple[launch.Result, launch.Result]:
    """Train without a build, then again on a host with empty caches and no compiler."""
    store = folder / "store"
    cold = launch.train(words(store), launch.environment(cache), folder / "cold", ranks=ranks)
    assert cold.code == 0, cold.output
    environment = launch.fresh_host(folder / "host")
    warm = launch.train(words(store, *STRICT), environment, folder / "warm", ranks=ranks)
    assert warm.code == 0, warm.output
    assert sum(cold.rank(rank)["ours"]["compiled"] for rank in range(ranks)) > 0
    assert all(warm.rank(rank)["ours"]["compiled"] == 0 for rank in range(ranks))
    assert all(warm.compiler_counts(rank) == {} for rank in range(ranks))
    return cold, warm


def test_no_pipeline_is_a_pipeline_of_one_stage(cache: Path, tmp_path: Path) -> None:
    def words(store: Path, *extra: str) -> list[str]:
        return arguments(1, store, *extra)

    cold, warm = _cold_then_warm(words, 1, cache, tmp_path)
    assert warm.same_numbers(cold)
    # torchtitan reports the loss of this rank's batch; a model that learned nothing yet has ln(V).
    assert warm.losses()[0] == pytest.approx(8.06, abs=0.1)


def test_chunked_loss_and_validation(cache: Path, tmp_path: Path) -> None:
    validation = ("--validator.enable", "--validator.freq", "1", "--validator.steps", "1")

    def words(store: Path | None, *extra: str) -> list[str]:
        job = [*arguments(2, store), *SEED, *CHUNKED, *validation, *extra]
        return [*job, "--training.steps", "2"]

    cold, warm = _cold_then_warm(words, 2, cache, tmp_path)
    assert warm.same_numbers(cold)
    assert _validation_losses(warm) == _validation_losses(cold)
    eager = launch.train(words(None), launch.environment(cache), tmp_path / "eager", ranks=2)
    assert eager.code == 0, eager.output
    assert warm.losses() == pytest.approx(eager.losses(), rel=1e-6)
    assert _validation_losses(warm) == pytest.approx(_validation_losses(eager), rel=1e-4)


def _validation_losses(result: launch.Result) -> list[float]:
    """Return the validation losses that the last stage's rank logged."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    found = [float(text) for text in re.findall(r"validate step:.*?loss:\s*(-?[\d.]+)", plain)]
    kept = [loss for loss in found if loss > 0]
    assert kept, result.output[-4000:]
    return kept


def test_results_do_not_depend_on_the_thread_count(cache: Path, tmp_path: Path) -> None:
    """Kernels are serial; only torch's own matrix products may sum in another order."""
    store = tmp_path / "store"
    one = launch.train(arguments(1, store), launch.environment(cache), tmp_path / "one", ranks=1)
    assert one.code == 0, one.output
    environment = launch.environment(cache, OMP_NUM_THREADS="3")
    three = launch.train(arguments(1, store, *STRICT), environment, tmp_path / "three", ranks=1)
    assert three.code == 0, three.output
    assert three.losses() == pytest.approx(one.losses(), rel=1e-6)
