import io
import json

import pytest
from rich.console import Console

from benchmarks import ratios, tables
from benchmarks.job import Job
from benchmarks.report import as_dict
from benchmarks.ways import WAYS
from tests.benchmarks.outcomes import outcome, samples

JOB = Job(module="m", config="c", degree=4, steps=2)
EQUAL_BITS, NEAR_EAGER, NEAR_GRAPH_PP = (
    "losses and gradient norms of cold and warm runs are equal bit for bit",
    "losses of eager runs are equal within 1e-05",
    "losses of GraphPP are equal within 1e-05",
)


def test_ratios_are_of_the_phases_they_name() -> None:
    found = ratios.ratios(samples())
    assert {name: spread.samples for name, spread in found.items()} == {
        "cold_jit/warm_fresh_host": (20.0, 30.0),
        "cold_jit/warm_fresh_host_first_step": (20.0, 30.0),
        "graph_pp_warm_cache/warm_fresh_host": (3.0, 4.0),
        "graph_pp_warm_cache/warm_fresh_host_first_step": (3.0, 4.0),
        "mega_cache/warm_fresh_host": (10.0, 5.0),
        "mega_cache/warm_fresh_host_first_step": (10.0, 5.0),
        "warm_fresh_host/eager_first_step": (2.0, 2.0),
        "warm_fresh_host/eager_steady": (0.5, 0.5),
    }


def test_json_holds_ratios_and_raw_samples() -> None:
    data = as_dict(JOB, {"cores": 2}, samples(), build_seconds=50.0)
    data = json.loads(json.dumps(data))
    assert data["format"] == 1
    assert data["machine"] == {"cores": 2}
    assert data["job"]["degree"] == 4
    assert data["ratios"]["cold_jit/warm_fresh_host"] == {
        "median": 25.0,
        "min": 20.0,
        "max": 30.0,
        "samples": [20.0, 30.0],
    }
    assert [run["phases"]["stages"] for run in data["samples"]["cold_jit"]] == [40.0, 60.0]
    assert data["phases"]["cold_jit"]["stages"]["median"] == 50.0
    assert data["checks"] == {EQUAL_BITS: True, NEAR_EAGER: True, NEAR_GRAPH_PP: True}
    assert data["eager_loss_difference"] == 0.0
    assert data["refused"] == {}


@pytest.mark.parametrize(
    ("way", "losses", "failing"),
    [
        ("warm_fresh_host", (8.0, 7.5000000000000009), EQUAL_BITS),
        ("eager", (8.0, 7.501), NEAR_EAGER),
        ("mega_cache", (8.0, 7.501), NEAR_GRAPH_PP),
    ],
)
def test_other_losses_fail_a_check(way: str, losses: tuple[float, ...], failing: str) -> None:
    changed = {**samples(), way: [outcome(1.0), outcome(1.0, losses)]}
    checks = ratios.checks(changed)
    assert [what for what, holds in checks.items() if not holds] == [failing]
    assert f"FAILED {failing}" in tables.check_lines(checks)


def test_what_graph_pp_refuses_has_no_ratio_and_its_reason() -> None:
    measured = {way: runs for way, runs in samples().items() if way in WAYS}
    refused = {"mega_cache": "GraphPP wants another schedule"}
    data = as_dict(JOB, {}, measured, build_seconds=1.0, refused=refused)
    assert set(data["ratios"]) == {
        "cold_jit/warm_fresh_host",
        "cold_jit/warm_fresh_host_first_step",
        "warm_fresh_host/eager_first_step",
        "warm_fresh_host/eager_steady",
    }
    assert NEAR_GRAPH_PP not in data["checks"]
    assert data["refused"] == refused


def test_eager_may_differ_by_rounding() -> None:
    changed = {**samples(), "eager": [outcome(1.0, (8.000001, 7.5))]}
    assert all(ratios.checks(changed).values())


def test_tables_show_every_phase_and_ratio() -> None:
    console = Console(width=140, file=io.StringIO(), record=True)
    measured = samples()
    console.print(tables.phase_table(ratios.phases(measured)))
    console.print(tables.count_table(measured))
    console.print(tables.ratio_table(ratios.ratios(measured)))
    text = console.export_text()
    for expected in (
        *ratios.ratios(measured),
        "stages, all",
        "step 1",
        "50.0 (40.0–60.0)",
        "25.0 ×",
        "345,678",
    ):
        assert expected in text
