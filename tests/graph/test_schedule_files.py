"""The files of schedules/ are sound, and each fault in one is found by its own check."""

from collections.abc import Callable

import msgspec
import pytest

from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.bubble import bubble_fraction, step_units
from pp_precompile.graph.check import check_build
from pp_precompile.graph.finding import Finding
from tests.manifests import make_schedule, make_sound
from tests.schedules import FILES, ROWS, read, table

Rows = list[list[str]]
Edit = Callable[[Rows], object]


def changed(name: str, edit: Edit) -> ScheduleTable:
    """The schedule of a file after ``edit`` changed the cells of its ranks."""
    schedule = table(name)
    rows = [list(texts) for texts in schedule.actions]
    edit(rows)
    return msgspec.structs.replace(schedule, actions=tuple(map(tuple, rows)))


def found(schedule: ScheduleTable, original: str) -> list[Finding]:
    """What is found in a build of a file's programs with another schedule."""
    manifest = make_sound(table(original))
    edited = make_sound(schedule)
    return check_build(
        msgspec.structs.replace(
            edited,
            stages=tuple(
                msgspec.structs.replace(stage, programs=made.programs)
                for stage, made in zip(edited.stages, manifest.stages, strict=True)
            ),
        )
    )


def test_the_readme_lists_the_files() -> None:
    assert sorted(ROWS) == FILES


@pytest.mark.parametrize("name", FILES)
def test_the_readme_says_what_is_in_a_file(name: str) -> None:
    schedule = table(name)
    numbers = (len(schedule.actions), schedule.stages, schedule.microbatches)
    assert ROWS[name][1:4] == tuple(map(str, numbers))
    assert ROWS[name][5] == f"{float(bubble_fraction(schedule)):.1%}"
    assert f"_{numbers[0]}x{numbers[2]}" in name
    assert read(name).communicates is name.endswith("_comms.csv")


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_no_check_finds_anything_in_a_file(name: str, gather: bool) -> None:
    assert check_build(make_sound(table(name), gather=gather)) == []


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("_comms.csv")])
def test_written_communication_adds_nothing_to_the_bubble(name: str) -> None:
    without = table(name.replace("_comms", ""))
    assert bubble_fraction(table(name)) == bubble_fraction(without)


def exchange(row: list[str], one: str, other: str) -> None:
    i, j = row.index(one), row.index(other)
    row[i], row[j] = row[j], row[i]


def move_before(row: list[str], moved: str, other: str) -> None:
    row.remove(moved)
    row.insert(row.index(other), moved)


def replace(row: list[str], old: str, new: str) -> None:
    row[row.index(old)] = new


FAULTS: dict[str, tuple[str, Edit, set[str], str]] = {
    # name: (file, change, exactly these codes, part of a finding's text)
    "a permuted action": (
        "zb_h1_4x8.csv",
        lambda rows: exchange(rows[3], "3F2", "3I2"),
        {"PPC522"},
        "3F2 (rank 3, position 5) before 3I2",
    ),
    "a missing W": (
        "zb_h1_4x8.csv",
        lambda rows: rows[1].remove("1W3"),
        {"PPC521"},
        "1 F, 1 I",
    ),
    "a missing I": (
        "zb_h1_4x8.csv",
        lambda rows: rows[1].remove("1I3"),
        {"PPC521"},
        "1 F, 1 W",
    ),
    "W before I": (
        "zb_h1_4x8.csv",
        lambda rows: exchange(rows[0], "0I2", "0W2"),
        {"PPC522"},
        "0I2 (rank 0, position 11) before 0W2",
    ),
    "B and W of one microbatch": (
        "zbv_zero_bubble_4x8.csv",
        lambda rows: replace(rows[0], "7I0", "7B0"),
        {"PPC521", "PPC105"},
        "1 F, 1 B, 1 W",
    ),
    "a missing receive": (
        "zb_h1_4x8_comms.csv",
        lambda rows: rows[2].remove("2RECV_B4"),
        {"PPC523"},
        "one 2RECV_B4 on rank 2",
    ),
    "a missing receive for an overlapped cell": (
        "dualpipev_4x8_comms.csv",
        lambda rows: rows[1].remove("6RECV_F2"),
        {"PPC523"},
        "one 6RECV_F2 on rank 1",
    ),
    "a send without its computation": (
        "zb_h1_4x8_comms.csv",
        lambda rows: move_before(rows[1], "1SEND_B0", "1I0"),
        {"PPC522"},
        "1I0 (rank 1, position",
    ),
    "no sends at all beside other communication": (
        "1f1b_2x8.csv",
        lambda rows: [row.append(f"{rank}REDUCE_GRAD") for rank, row in enumerate(rows)],
        {"PPC523"},
        "one 0SEND_F0 on rank 0 and one 1RECV_F0 on rank 1",
    ),
    "overlapped cells out of order": (
        "dualpipev_4x8.csv",
        lambda rows: exchange(rows[0], "(7F7;0B3)OVERLAP_F_B", "7B7"),
        {"PPC522"},
        "7F7 in (7F7;0B3)OVERLAP_F_B (rank 0, position 25) before 7B7",
    ),
    "overlapped actions out of order inside their cell": (
        "1f1b_2x8.csv",
        lambda rows: rows[1].__setitem__(slice(0, 2), ["(1B0;1F0)OVERLAP_F_B"]),
        {"PPC522"},
        "1F0 in (1B0;1F0)OVERLAP_F_B (rank 1, position 0) before 1B0",
    ),
    "an overlapped cell before what it needs on its rank": (
        "dualpipev_4x8.csv",
        lambda rows: exchange(rows[3], "(4F4;3B0)OVERLAP_F_B", "4B0"),
        {"PPC524"},
        "(4F4;3B0)OVERLAP_F_B (rank 3, position 9) → 4B0 (rank 3, position 10) → "
        "(4F4;3B0)OVERLAP_F_B (rank 3, position 9)",
    ),
    "a ring": (
        "zb_h1_2x8.csv",
        lambda rows: move_before(rows[0], "0I0", "0F1") or move_before(rows[1], "1F1", "1I0"),
        {"PPC524"},
        "0I0 (rank 0, position 1) → 0F1 (rank 0, position 2) → 1F1 (rank 1, position 1) → "
        "1I0 (rank 1, position 2) → 0I0 (rank 0, position 1)",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    file, edit, codes, text = FAULTS[name]
    findings = found(changed(file, edit), file)
    assert {finding.code for finding in findings} == codes
    assert text in "\n".join(map(str, findings))


def test_a_wrong_v_mapping_is_found() -> None:
    """A file for a V beside the name of a schedule whose stages go round in a loop, and reverse."""
    in_v = msgspec.structs.replace(table("zbv_zero_bubble_4x8.csv"), name="Interleaved1F1B")
    [finding] = check_build(make_sound(in_v))
    assert (finding.code, finding.where.rank) == ("PPC527", 0)
    assert (finding.expected, finding.found) == ("stages 0, 4 on rank 0", "stages 0, 7 on rank 0")
    in_loop = msgspec.structs.replace(table("interleaved1f1b_2x8.csv"), name="ZBVZeroBubble")
    [finding] = check_build(make_sound(in_loop))
    assert (finding.expected, finding.found) == ("stages 0, 3 on rank 0", "stages 0, 2 on rank 0")


def two_ranks(*rows: list[str]) -> ScheduleTable:
    """Two ranks, one stage each, two microbatches."""
    schedule = make_schedule(2, 2, 2)
    return msgspec.structs.replace(schedule, actions=tuple(map(tuple, rows)))


OVERLAPPED = (
    ["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"],
    ["1F0", "(1F1;1B0)OVERLAP_F_B", "1B1"],
)


def test_a_ring_through_an_overlapped_cell_is_found() -> None:
    """Run one after the other they would end: torch sends nothing from inside a cell."""
    apart = [[text for cell in row for text in unfolded(cell)] for row in OVERLAPPED]
    assert check_build(make_sound(two_ranks(*apart))) == []
    [finding] = check_build(make_sound(two_ranks(*OVERLAPPED)))
    assert finding.code == "PPC524"
    assert finding.found == (
        "(0F1;0B0)OVERLAP_F_B (rank 0, position 1) → (1F1;1B0)OVERLAP_F_B (rank 1, position 1) → "
        "(0F1;0B0)OVERLAP_F_B (rank 0, position 1)"
    )


def unfolded(cell: str) -> list[str]:
    return cell.partition(")")[0].strip("(").split(";")


def test_a_schedule_that_waits_for_itself_has_no_bubble() -> None:
    with pytest.raises(ValueError, match="waits for itself"):
        bubble_fraction(two_ranks(*OVERLAPPED))
    with pytest.raises(ValueError, match="computes nothing"):
        bubble_fraction(two_ranks([], []))


def test_units_of_time() -> None:
    assert step_units(two_ranks(["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"])) == 9
    assert step_units(two_ranks(["0F0", "0I0", "0W0"], ["1F0", "1I0", "1W0"])) == 5
