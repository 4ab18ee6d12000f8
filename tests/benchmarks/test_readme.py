import re

import pytest

from benchmarks import readme
from benchmarks.job import Job
from benchmarks.outcome import PHASES
from benchmarks.process import ROOT
from benchmarks.report import as_dict
from tests.benchmarks.outcomes import samples

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


def test_the_section_holds_machine_phases_ratios_and_checks() -> None:
    text = readme.section([report()])
    for expected in (
        "`some_config`, pipeline degree 4, 6 steps, repetitions: 2. Machine: Some CPU, 2 cores",
        "The build took 50 s.",
        "| phase (seconds) | cold_jit | warm_fresh_host | eager |",
        "| stages, all | 50.0 (40.0–60.0) | 2.00 (2.00–2.00) | 1.00 (1.00–1.00) |",
        "| `cold_jit/warm_fresh_host` | stages, all | 25.0 (20.0–30.0) |",
        "equal bit for bit",
    ):
        assert expected in text


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    page = f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n"
    once = readme.replaced(page, "new\n")
    assert once == f"before\n{readme.BEGIN}\n\nnew\n\n{readme.END}\nafter\n"
    assert readme.replaced(once, "new\n") == once


@pytest.mark.parametrize("page", ["none", readme.BEGIN, f"{readme.END} {readme.BEGIN}"])
def test_a_page_without_both_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="marks"):
        readme.replaced(page, "new")


def test_the_readme_has_a_measured_section_with_every_phase() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(re.escape(readme.BEGIN) + "(.*)" + re.escape(readme.END), text, re.DOTALL)
    assert match
    assert all(f"| {title} |" in match[1] for title in PHASES.values())
