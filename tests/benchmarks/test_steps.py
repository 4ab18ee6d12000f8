import json
from pathlib import Path

import pytest

from benchmarks.steps import FIGURES, Steps, around, bubble, cpu, read_steps, seconds, waiting
from tests.benchmarks.outcomes import outcome

STEP = (
    {"seconds": 2.0, "cpu": 1.5, "waiting": 0.5, "programs": 0.75, "busy": {"F": 0.5, "B": 0.5}},
    {"seconds": 1.0, "cpu": 1.0, "waiting": 0.25, "programs": 0.75, "busy": {"F": 1.0}},
)


def write(folder: Path, *ranks: object) -> None:
    for rank, steps in enumerate(ranks):
        (folder / f"steps_{rank}.json").write_text(json.dumps(steps))


def test_a_step_takes_as_long_as_on_the_slowest_rank() -> None:
    assert seconds(STEP) == 2.0


def test_the_bubble_is_what_is_not_spent_in_actions_of_the_time_of_all_ranks() -> None:
    assert bubble(STEP) == pytest.approx(100 * (1 - 2 / 4))
    assert waiting(STEP) == pytest.approx(100 * 0.75 / 4)


def test_processor_time_and_time_around_programs_add_up_over_ranks() -> None:
    assert cpu(STEP) == 2.5
    assert around(STEP) == pytest.approx(500.0)


def test_steps_that_warm_up_do_not_count() -> None:
    ranks = [[{"seconds": s} for s in (100.0, 1.0, 3.0, 2.0)]] * 2
    assert Steps(outcome=outcome(1.0), warmup=1, ranks=ranks).median(seconds) == 2.0


def test_every_rank_is_read(tmp_path: Path) -> None:
    write(tmp_path, [STEP[0]] * 3, [STEP[1]] * 3)
    steps = read_steps(tmp_path, outcome=outcome(1.0), ranks=2, warmup=1)
    assert {name: steps.median(figure) for name, figure in FIGURES.items()}["step"] == 2.0
    assert json.loads(json.dumps(steps.as_dict()))["ranks"][1][0] == STEP[1]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (([STEP[0]] * 3,), r"steps_1\.json"),
        (([STEP[0]] * 3, [STEP[1]] * 2), r"different numbers of steps: \[2, 3\]"),
        (([STEP[0]], [STEP[1]]), "no step is left after 1"),
    ],
)
def test_reports_that_do_not_fit_are_errors(ranks, text: str, tmp_path: Path) -> None:
    write(tmp_path, *ranks)
    with pytest.raises(ValueError, match=text):
        read_steps(tmp_path, outcome=outcome(1.0), ranks=2, warmup=1)
