import io
import json
from typing import Any

import pytest
from rich.console import Console

from benchmarks import build_sharing, readme
from benchmarks.build_sharing import Build, Builds
from tests.benchmarks.test_readme import report


def build(**facts: Any) -> Build:
    """A build that took 50 seconds, and 70 of processors."""
    return Build(**{"seconds": 50.0, "cpu_seconds": 70.0, "distinct": 7} | facts)


def builds(**changed: list[Build]) -> Builds:
    """Two repetitions of three ways; PP4 takes 40 and 80, the others 50 and 60 seconds."""

    def made(seconds: float, programs: int, size: int) -> Build:
        return build(seconds=seconds, programs=programs, blob_bytes=size)

    return {
        "build_pp4": [made(40.0, 9, 300), made(80.0, 9, 300)],
        "build_pp8": [made(50.0, 17, 200), made(60.0, 17, 200)],
        "build_pp16": [made(50.0, 33, 100), made(60.0, 33, 100)],
    } | changed


def test_ratios_are_of_builds_of_the_same_repetition() -> None:
    found = build_sharing.ratios(builds())
    assert {name: each.samples for name, each in found.items()} == {
        "build_pp8/build_pp4": (1.25, 0.75),
        "build_pp16/build_pp4": (1.25, 0.75),
    }


def test_a_report_gets_ratios_checks_and_raw_samples() -> None:
    data = build_sharing.merged(report(), builds(), layers=64)
    data = json.loads(json.dumps(data))
    assert data["ratios"]["build_pp16/build_pp4"]["samples"] == [1.25, 0.75]
    assert "cold_jit/warm_fresh_host" in data["ratios"]
    assert data["builds"]["samples"]["build_pp4"][1]["seconds"] == 80.0
    assert data["builds"]["layers"] == 64
    assert all(data["checks"].values())
    assert len(data["checks"]) == 5
    ((_, text),) = readme.sections([data])
    for expected in (
        "| `build_pp16/build_pp4` | build, whole command | 1.00 (0.750–1.25) |",
        "Builds of a model of 64 equal layers, with `--jobs 1`:",
        "| `build_pp8` | 55.0 (50.0–60.0) | 70.0 (70.0–70.0) | 17 | 7 | 200 |",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("other", "failing"),
    [
        (build(programs=33, distinct=8, blob_bytes=100), "as many distinct ones"),
        (build(programs=17, blob_bytes=100), "as many distinct ones"),
        (build(programs=33, blob_bytes=200), "take fewer bytes"),
    ],
)
def test_builds_that_share_less_fail_a_check(other: Build, failing: str) -> None:
    found = build_sharing.checks(builds(build_pp16=[other, other]))
    [what] = [what for what, holds in found.items() if not holds]
    assert failing in what


def test_the_table_has_a_row_for_each_way() -> None:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(build_sharing.table(builds()))
    text = console.export_text()
    for expected in ("build_pp4", "60.0 (40.0–80.0)", "33", "1.00 (0.750–1.25)"):
        assert expected in text
