import json

import pytest

from benchmarks import step_tables
from benchmarks.job import Job
from benchmarks.step_report import as_dict, checks
from benchmarks.step_ways import WARMUP, WAYS
from tests.benchmarks.step_samples import measured, steps, wrapper

JOB = Job(module="m", config="c", degree=2, steps=WARMUP + 3)
SAME_BITS, NEAR_OURS = (
    "losses and gradient norms of ours are equal bit for bit in all repetitions",
    "losses of all ways are equal within 1e-05 in every schedule",
)


def report() -> step_tables.Report:
    data = as_dict(JOB, {}, measured(), ways=list(WAYS), wrapper=[wrapper(40.0), wrapper(60.0)])
    return json.loads(json.dumps(data))


def test_ratios_above_one_mean_that_ours_is_faster() -> None:
    found = report()["ratios"]
    assert found["graph_pp/ours[LoopedBFS]"]["samples"] == [1.5, 1.25]
    assert found["eager/ours[GPipe]"]["samples"] == [3.0, 2.0]
    assert found["graph_pp/ours_cpu[LoopedBFS]"]["samples"] == [0.5, 0.5]
    assert "graph_pp/ours[GPipe]" not in found


def test_json_holds_every_step_and_every_reason() -> None:
    data = report()
    assert list(data["schedules"]) == ["GPipe", "LoopedBFS"]
    assert data["job"]["steps"] == 3
    gpipe = data["schedules"]["GPipe"]
    assert gpipe["refused"] == {"graph_pp": "GraphPP wants another schedule"}
    assert gpipe["ways"]["ours"]["bubble"]["median"] == pytest.approx(50.0)
    assert len(data["samples"]["GPipe"]["eager"][1]["ranks"][0]) == 4
    assert data["checks"] == {SAME_BITS: True, NEAR_OURS: True}


@pytest.mark.parametrize(
    ("way", "losses", "failing"),
    [("ours", (8.0, 7.5000000000000009), SAME_BITS), ("graph_pp", (8.0, 7.501), NEAR_OURS)],
)
def test_other_losses_fail_a_check(way: str, losses: tuple[float, ...], failing: str) -> None:
    changed = measured()
    changed[0].runs[way][1] = steps(1.0, losses=losses)
    assert [what for what, holds in checks(changed).items() if not holds] == [failing]


def test_tables_show_every_schedule_and_way() -> None:
    text = "\n".join(grid.markdown() for grid in step_tables.grids(report()))
    for expected in (
        "| step (seconds) | ours | graph_pp | eager | eager_plain |",
        "| GPipe | 1.50 (1.00–2.00) | refused | 3.50 (3.00–4.00) | 2.00 (2.00–2.00) |",
        "| step, ratio | graph_pp/ours | eager/ours | eager_plain/ours |",
        "| LoopedBFS | 1.38 (1.25–1.50) | 3.00 (3.00–3.00) | 2.00 (2.00–2.00) |",
        "| bubble (%) | unit times | ours | graph_pp | eager | eager_plain |",
        "| around programs (ms a step) | ours | graph_pp |",
        "| around one call (µs; goal below 100) | F | B | I | W |",
        "| stage of 2 parameters | 50.0 (40.0–60.0) |",
        "| autograd alone | 50.0 (40.0–60.0) | 50.0 (40.0–60.0) | – | – |",
    ):
        assert expected in text


def test_a_refusal_is_told_in_its_own_words() -> None:
    expected = "graph_pp refuses GPipe: “GraphPP wants another schedule”"
    assert step_tables.refusals(report()) == [expected]


def test_without_the_wrapper_its_table_is_left_out() -> None:
    data = as_dict(JOB, {}, measured(), ways=list(WAYS))
    assert all("around one call" not in grid.head[0] for grid in step_tables.grids(data))
