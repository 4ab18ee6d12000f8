import re
from pathlib import Path

import pytest

from benchmarks import readme
from benchmarks.front_ends import BLOCK
from benchmarks.job import Job
from benchmarks.outcome import PHASES
from benchmarks.process import ROOT
from benchmarks.report import as_dict
from benchmarks.step_report import as_dict as as_step_dict
from benchmarks.step_ways import WARMUP, WAYS
from benchmarks.store_report import as_dict as as_store_dict
from tests.benchmarks.outcomes import samples
from tests.benchmarks.step_samples import measured, wrapper
from tests.benchmarks.store_samples import measured as measured_store

MACHINE: dict[str, object] = {
    "cpu": "Some CPU",
    "vector_isa": "avx2",
    "cores": 2,
    "memory_gib": 8,
    "system": "Linux",
    "python": "3.11",
    "torch": "2.14.1",
    "torchtitan": "0.3.0",
    "threads_per_rank": 1,
}


def report() -> dict[str, object]:
    job = Job(module="m", config="some_config", degree=4, steps=6)
    return as_dict(job, MACHINE, samples(), build_seconds=50.4)


def step_report() -> dict[str, object]:
    job = Job(module="m", config="some_config", degree=2, steps=WARMUP + 3)
    return as_step_dict(job, MACHINE, measured(), ways=list(WAYS), wrapper=[wrapper(50.0)])


def test_the_section_holds_machine_phases_ratios_and_checks() -> None:
    ((marks, text),) = readme.sections([report()])
    assert marks == readme.WARM_START
    for expected in (
        "`some_config`, pipeline degree 4, 6 steps, repetitions: 2. Machine: Some CPU, 2 cores",
        "The build took 50 s.",
        "| phase (seconds) | cold_jit | warm_fresh_host | eager | graph_pp_warm_cache | mega_",
        "| stages, all | 50.0 (40.0–60.0) | 2.00 (2.00–2.00) | 1.00 (1.00–1.00) | ",
        "| bytes loaded | 345,678 | 345,678 | ",
        "| `cold_jit/warm_fresh_host` | stages, all | 25.0 (20.0–30.0) |",
        "equal bit for bit",
    ):
        assert expected in text


def test_another_front_end_is_named() -> None:
    job = Job(module="m", config="some_config", degree=4, steps=6, front_end=BLOCK)
    other = as_dict(job, MACHINE, samples(), build_seconds=50.4)
    ((_, text),) = readme.sections([other])
    assert "`some_config`, front end `block`, pipeline degree 4" in text


def test_the_section_of_steps_holds_schedules_refusals_and_checks() -> None:
    ((marks, text),) = readme.sections([step_report()])
    assert marks == readme.STEP_TIME
    for expected in (
        "`some_config`, 2 ranks, median of 3 steps after 3 to warm up, repetitions: 2. Machine: S",
        "| GPipe | 1.50 (1.00–2.00) | refused |",
        "graph_pp refuses GPipe: “GraphPP wants another schedule”\n",
        "Checked: losses and gradient norms of ours",
        "(largest difference 0e+00).",
    ):
        assert expected in text


def test_the_section_of_the_store_holds_machine_tables_and_checks(tmp_path: Path) -> None:
    facts = {**MACHINE, "file_system": "ext4", "git": "2.39.5", "load_average": 0.5}
    measured = measured_store(tmp_path)
    measured.upkeep.sound = False
    ((marks, text),) = readme.sections([as_store_dict(facts, measured)])
    assert marks == readme.STORE
    for expected in (
        "Machine: Some CPU, 2 cores, 8 GiB, Linux, ext4 file system",
        "| time, ratio | git_level_0/store | git/store | copy/store |",
        "Checked: every load in every way returned the bytes that were published; no process",
        "**not**: fsck counted every build",
    ):
        assert expected in text


def test_reports_of_one_benchmark_share_a_section() -> None:
    found = dict(readme.sections([report(), step_report(), report()]))
    assert list(found) == [readme.WARM_START, readme.STEP_TIME]
    assert found[readme.WARM_START].count("Machine: ") == 2


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    begin, end = readme.STEP_TIME
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    once = readme.replaced(page, "new\n", readme.STEP_TIME)
    assert once == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    assert readme.replaced(once, "new\n", readme.STEP_TIME) == once


@pytest.mark.parametrize("page", ["none", "{begin}", "{end} {begin}", "{begin} {begin} {end}"])
def test_a_page_without_both_marks_is_refused(page: str) -> None:
    marks = readme.WARM_START
    with pytest.raises(ValueError, match="marks"):
        readme.replaced(page.format(begin=marks.begin, end=marks.end), "new", marks)


def test_the_readme_has_a_measured_section_with_every_phase() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(
        re.escape(readme.WARM_START.begin) + "(.*)" + re.escape(readme.WARM_START.end),
        text,
        re.DOTALL,
    )
    assert match
    assert all(f"| {title} |" in match[1] for title in PHASES.values())
