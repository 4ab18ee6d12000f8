"""Whatever the bytes, reading a manifest and looking through it ends well or in one of our errors.

``python -m tests.fuzz.run`` does the same for as many inputs as there is time for.
"""

import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp_precompile.contract.manifest import Manifest
from tests.fuzz import run
from tests.fuzz.inputs import CORPUS, KINDS, make, mutated, small, structured
from tests.fuzz.reading import Outcome, read, use
from tests.strategies import mutations


@settings(max_examples=1000)
@given(data=st.binary(max_size=2000))
def test_random_bytes(data: bytes) -> None:
    assert not read(data).accepted


@settings(max_examples=1000)
@given(data=mutations(st.sampled_from(small())))
def test_damaged_bytes(data: bytes) -> None:
    read(data)


@settings(max_examples=1000)
@given(seed=st.integers(0, 2**64))
def test_damaged_bytes_of_many_kinds(seed: int) -> None:
    read(mutated(Random(seed), small()))


@settings(max_examples=700)
@given(seed=st.integers(0, 2**64))
def test_replaced_parts(seed: int) -> None:
    read(structured(Random(seed), small()))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("real")])
def test_real_manifests(kind: str) -> None:
    for seed in range(40):
        read(KINDS[kind](Random(seed)))


@pytest.mark.parametrize("kind", KINDS)
def test_memory_grows_with_the_bytes(kind: str) -> None:
    """Tens of bytes are taken for each byte that is read; what is claimed would need gigabytes."""
    inputs = [KINDS[kind](Random(seed)) for seed in range(10)]
    tracemalloc.start()
    try:
        for data in inputs:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            read(data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 100 * len(data) + 1_000_000
    finally:
        tracemalloc.stop()


def test_the_manifests_that_are_changed_are_good_ones() -> None:
    for data in small():
        use(Manifest.from_bytes(data))


def test_replaced_parts_reach_the_checks_behind_the_form() -> None:
    """Else the fuzz would only show that forms are checked."""
    outcomes = {str(read(structured(Random(seed), small()))) for seed in range(200)}
    assert {"accepted fits", "refused PPC205", "refused PPC206"} <= outcomes
    assert len({outcome for outcome in outcomes if outcome.startswith("accepted PPC")}) >= 4


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.msgpack")), ids=lambda path: path.stem)
def test_what_was_found_before(path: Path) -> None:
    """Each file's name begins with what must become of it."""
    expected, _, _ = path.stem.partition("-")
    outcome = read(path.read_bytes())
    assert expected == f"{'accepted' if outcome.accepted else 'refused'}_{outcome.code}"


def test_the_same_seed_makes_the_same_input() -> None:
    assert make(1, 2) == make(1, 2)
    assert make(1, 2) != make(1, 3)


def test_a_run_counts_and_keeps_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.one(0, 1, tmp_path).failure == ""

    def broken(data: bytes) -> Outcome:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(run, "read", broken)
    result = run.one(0, 1, tmp_path)
    assert result.outcome == "RAISED ZeroDivisionError"
    assert "a bug" in result.failure
    assert (tmp_path / "0-1.bin").read_bytes() == make(0, 1)[1]
