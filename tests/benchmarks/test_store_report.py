import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import store_tables
from benchmarks.store_report import Measured, as_dict, label
from tests.benchmarks.store_samples import NEW, OLD, SHARED, SPARE, measured

MACHINE: dict[str, object] = {
    "cpu": "Some CPU",
    "cores": 2,
    "memory_gib": 8,
    "system": "Linux",
    "file_system": "ext4",
    "python": "3.11",
    "git": "2.39.5",
    "load_average": 0.5,
}


def report(folder: Path) -> store_tables.Report:
    return json.loads(json.dumps(as_dict(MACHINE, measured(folder))))


def test_ratios_divide_samples_of_one_repetition(tmp_path: Path) -> None:
    ratios = report(tmp_path)["ratios"]
    assert ratios["git/store publish 1 MiB"]["samples"] == [4.0, 2.0]
    assert ratios["copy/store load_cold 1 MiB"]["samples"] == [4.0, 2.0]
    assert ratios["8/1 read different blobs"]["samples"] == [3.0, 1.0]
    assert ratios["gc/git_gc"]["samples"] == [0.25, 0.5]


def test_json_holds_raw_samples_and_facts(tmp_path: Path) -> None:
    data = report(tmp_path)
    assert data["machine"] == MACHINE
    assert data["throughput"][0]["seconds"]["store"]["load"]["samples"] == [1.0, 2.0]
    assert data["contention"][1]["rates"]["read"]["samples"] == [300.0, 200.0]
    assert data["upkeep"]["seconds"]["fsck"]["samples"] == [1.0, 2.0]
    assert (data["upkeep"]["blobs"], data["upkeep"]["deleted_blobs"]) == (4, 2)
    assert all(data["checks"].values())


def test_what_is_to_be_deleted_is_what_no_kept_build_needs(tmp_path: Path) -> None:
    upkeep = measured(tmp_path).upkeep
    assert upkeep.blobs == {SHARED, OLD, NEW, SPARE}
    assert upkeep.deleted == {OLD, SPARE}


def _lose(found: Measured) -> None:
    found.blobs[0].same["git"] = False


def _tear(found: Measured) -> None:
    found.crowds[0][1].torn[1] = 1


def _see_nothing(found: Measured) -> None:
    found.crowds[0][1].glimpses[0] = 0


def _leave(found: Measured) -> None:
    found.crowds[0][0].complete[0] = False


def _upkeep(name: str) -> Callable[[Measured], None]:
    return lambda found: setattr(found.upkeep, name, False)


@pytest.mark.parametrize(
    ("spoil", "failing"),
    [
        (_lose, "every load in every way"),
        (_tear, "no process read anything torn"),
        (_see_nothing, "processes did read what others"),
        (_leave, "afterwards each blob"),
        (_upkeep("sound"), "fsck counted"),
        (_upkeep("exact"), "gc deleted"),
        (_upkeep("found_damage"), "after gc, fsck found"),
        (_upkeep("git_agrees"), "git deleted"),
    ],
)
def test_each_check_fails_for_its_own_reason(
    spoil: Callable[[Measured], None], failing: str, tmp_path: Path
) -> None:
    found = measured(tmp_path)
    spoil(found)
    (failed,) = [what for what, holds in found.checks().items() if not holds]
    assert failed.startswith(failing)


def test_tables_show_rates_ratios_and_spread(tmp_path: Path) -> None:
    data = report(tmp_path)
    text = "\n".join([store_tables.what(data), *(g.markdown() for g in store_tables.grids(data))])
    for expected in (
        "Repetitions: 2. Contention: 64 blobs of 256 KiB a process. Upkeep: 4 blobs of 8 KiB, ",
        "2 builds with 3 MB of manifests; `gc` keeps 1 of them and deletes 2 blobs.",
        "git 2.39.5; load average before the run: 0.50.",
        "| MB/s | store | git_level_0 | git | copy |",
        "| publish: 32 × 1 MiB | 25.2 (16.8–33.6) | 8.39 (8.39–8.39) |",
        "| time, ratio | git_level_0/store | git/store | copy/store |",
        "| processes | 1: ops/s | 8: ops/s | 8/1 | 1: slowest, ms | 8: slowest, ms |",
        "| read: different blobs | 150 (100–200) | 250 (200–300) | 2.00 (1.00–3.00) | 500 (",
        "| `fsck` | 1.50 (1.00–2.00) | 3.00 (2.00–4.00) |",
        "| gc / git_gc | 0.375 (0.250–0.500) |",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("size", "text"),
    [(100, "100 B"), (2**10, "1 KiB"), (2**16, "64 KiB"), (2**24, "16 MiB"), (1500, "1500 B")],
)
def test_label(size: int, text: str) -> None:
    assert label(size) == text
