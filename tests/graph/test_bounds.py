"""What keeps checks short: texts are cut, findings counted, a schedule is taken apart once."""

import itertools
from collections.abc import Iterator

import msgspec
import pytest

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest, Variant
from pp_precompile.graph import check
from pp_precompile.graph.check import check_build, limited
from pp_precompile.graph.finding import MAX_TEXT, Finding, Severity, listed
from pp_precompile.graph.timetable import one_of_each, timetable
from tests.graph.builds import PP4, edited
from tests.manifests import make_schedule, make_sound


def finding(number: int, severity: Severity = "error") -> Finding:
    return Finding(
        code="PPC505",
        message="something",
        where=Where(stage=number),
        expected="a",
        found="b",
        severity=severity,
    )


def test_texts_that_quote_too_much_are_cut() -> None:
    cut = msgspec.structs.replace(finding(0), expected="x" * 10**6, found="y" * MAX_TEXT)
    assert cut.expected == "x" * MAX_TEXT + "…"
    assert cut.found == "y" * MAX_TEXT


def test_only_what_is_shown_of_a_list_becomes_text() -> None:
    class Named:
        def __init__(self, number: int) -> None:
            self.number = number

        def __str__(self) -> str:
            assert self.number < 6
            return str(self.number)

    names = [Named(number) for number in range(1000)]
    assert listed(names) == listed(iter(names)) == "0, 1, 2, 3, 4, 5 and 994 more"
    assert listed([]) == listed(iter([])) == "none"


def test_the_search_ends_with_too_many_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MAX_FINDINGS", 3)
    numbers = itertools.count()
    assert list(limited(map(finding, numbers))) == [finding(i) for i in range(3)]
    assert next(numbers) == 4


def test_warnings_never_hide_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MAX_FINDINGS", 3)

    def found() -> Iterator[Finding]:
        yield from (finding(i, "warning") for i in range(100))
        yield finding(100)

    *warnings, error = limited(found())
    assert len(warnings) == 3
    assert error == finding(100)


def test_the_first_action_of_each_stage_and_kind() -> None:
    schedule = msgspec.structs.replace(
        PP4.schedule, actions=(("0F0", "0F1", "0B0"), ("1F0", "(1F1;1B0)OVERLAP_F_B", "1B1"))
    )
    brief = one_of_each(schedule)
    assert brief.actions == (("0F0", "0B0"), ("1F0", "(1F1;1B0)OVERLAP_F_B"))
    assert timetable(brief).written == timetable(schedule).written


def with_variant(manifest: Manifest, without: str | None) -> Manifest:
    stages = tuple(
        msgspec.structs.replace(
            stage, programs={r: p for r, p in stage.programs.items() if r != without}
        )
        for stage in manifest.stages
    )
    variant = Variant(columns=(1,), stages=stages)
    return msgspec.structs.replace(manifest, variants=(variant,))


def test_a_variant_that_lacks_a_program_is_found() -> None:
    sound = make_sound(make_schedule(2, 2, 3), dims={"dp": 2})
    assert check_build(with_variant(sound, None)) == []
    codes = [(f.code, f.where.program) for f in check_build(with_variant(sound, "backward"))]
    assert codes.count(("PPC105", "backward")) == 2


def test_a_c_library_of_endless_digits_is_compared() -> None:
    def write(value: dict[str, dict[str, str]]) -> None:
        value["environment"]["libc"] = "glibc-" + "9" * 5000

    assert check_build(edited(write), host=PP4.environment) == []


def test_a_claimed_number_of_microbatches_costs_nothing() -> None:
    table = timetable(msgspec.structs.replace(PP4.schedule, microbatches=2**62))
    actions = sum(map(len, PP4.schedule.actions))
    assert table.microbatches * table.stages <= actions + table.stages
