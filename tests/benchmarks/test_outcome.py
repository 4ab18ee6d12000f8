import json
from pathlib import Path

import pytest

from benchmarks.outcome import PHASES, rank_phases, read_outcome, slowest

RANK = {
    "imports": 6.0,
    "init": 1.0,
    "agree": 0.25,
    "build": 0.0,
    "load": 0.25,
    "stages": 0.5,
    "first_step_done": 9.0,
    "steps": [1.5, 0.5, 0.75, 4.0],
}
STEP = {"loss": (8.0).hex(), "grad_norm": (0.5).hex()}


def write(folder: Path, **ranks: object) -> None:
    for name, content in ranks.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def test_steps_become_the_first_and_the_median_of_the_others() -> None:
    phases = rank_phases(RANK)
    assert phases["first_step"] == 1.5
    assert phases["steady_step"] == 0.75
    assert phases.keys() == PHASES.keys() - {"wall"}


def test_one_step_has_no_steady_step() -> None:
    with pytest.raises(ValueError, match="at least two"):
        rank_phases(RANK | {"steps": [1.0]})


def test_a_job_is_as_slow_as_its_slowest_rank_in_each_phase() -> None:
    assert slowest([{"a": 1.0, "b": 4.0}, {"a": 3.0, "b": 2.0}]) == {"a": 3.0, "b": 4.0}


def test_reports_of_all_ranks_are_read(tmp_path: Path) -> None:
    write(tmp_path, rank_0=RANK, rank_1=RANK | {"init": 2.0}, losses_1=[STEP])
    counts = {"compiled": 1, "loaded": 3, "bytes_loaded": 10, "reused": 0}
    write(tmp_path, counts_0=counts, counts_1=counts | {"loaded": 4})
    outcome = read_outcome(tmp_path, ranks=2, wall=12.0)
    assert outcome.phases["init"] == 2.0
    assert outcome.phases["wall"] == 12.0
    assert outcome.losses == ((8.0).hex(),)
    assert len(outcome.ranks) == 2
    assert outcome.counts == {"compiled": 2, "loaded": 7, "bytes_loaded": 20}
    assert json.loads(json.dumps(outcome.as_dict()))["losses"] == [(8.0).hex()]


def test_a_rank_without_a_report_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, rank_0=RANK, losses_0=[STEP])
    with pytest.raises(ValueError, match=r"rank_1\.json"):
        read_outcome(tmp_path, ranks=2, wall=1.0)


@pytest.mark.parametrize("reports", [{}, {"losses_0": [STEP], "losses_1": [STEP, STEP]}])
def test_losses_must_be_reported_and_agree(reports: dict[str, object], tmp_path: Path) -> None:
    write(tmp_path, rank_0=RANK, **reports)
    with pytest.raises(ValueError, match="reports of losses"):
        read_outcome(tmp_path, ranks=1, wall=1.0)
