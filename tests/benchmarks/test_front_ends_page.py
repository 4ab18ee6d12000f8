from benchmarks import front_ends_page
from benchmarks.front_ends import BLOCK, STAGE, FrontEnd
from benchmarks.job import Job
from benchmarks.outcome import Outcome
from benchmarks.report import as_dict
from tests.benchmarks.outcomes import outcome, samples
from tests.benchmarks.test_readme import MACHINE


def report(front_end: FrontEnd, **ways: list[Outcome]) -> dict[str, object]:
    job = Job(module="m", config="some_config", degree=2, steps=6, front_end=front_end)
    return as_dict(job, MACHINE, {**samples(), **ways}, build_seconds=50.4)


def test_front_ends_stand_side_by_side() -> None:
    text = front_ends_page.section([report(STAGE), report(BLOCK)])
    assert text.count("Machine: Some CPU") == 1
    for expected in (
        "- `stage`: `some_config`, pipeline degree 2, 6 steps, repetitions: 2.\n",
        "- `block`: `some_config`, front end `block`, pipeline degree 2",
        "| `block` | 50.0 (40.0–60.0) | 2.00 (2.00–2.00) | 25.0 (20.0–30.0) | 50.0 (40.0–60.0) |",
        "| `stage` | 0 | 0 | 12 | 345,678 |",
        "| `stage` | eager | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 0.500 (0.500–0.500) |",
        "| `block` | mega_cache | 15.0 (10.0–20.0) |",
        "- Checked of `stage`, `block`: losses and gradient norms of cold and warm",
    ):
        assert expected in text


def test_a_check_that_does_not_hold_is_shown() -> None:
    other = [outcome(1.0, losses=(8.0, 7.0)), outcome(1.0)]
    text = front_ends_page.section([report(STAGE, warm_fresh_host=other)])
    assert "**not**: losses and gradient norms of cold and warm runs" in text


def test_the_page_has_a_measured_row_for_every_front_end() -> None:
    page = front_ends_page.PAGE.read_text(encoding="utf-8")
    marks = front_ends_page.MARKS
    measured = page.partition(marks.begin)[2].partition(marks.end)[0]
    for name in ("stage", "block", "graph_pp", "pipe"):
        assert f"| `{name}` | " in measured
