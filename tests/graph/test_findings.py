"""One place of a real build is changed, and the check for that place speaks up: all 5xx codes."""

import msgspec
import pytest

from pp_precompile.contract.errors import CODES
from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import FORMAT, Manifest
from pp_precompile.graph.check import check_build
from pp_precompile.graph.finding import Finding
from tests.graph.builds import (
    INTERLEAVED,
    PP4,
    Plain,
    actions,
    edited,
    stage,
)
from tests.graph.cases import CASES, Edit, add_unused_parameter, communication, exchange


def codes(findings: list[Finding]) -> set[str]:
    return {finding.code for finding in findings}


@pytest.mark.parametrize("name", CASES)
def test_the_change_is_found(name: str) -> None:
    edit, expected, text = CASES[name]
    findings = check_build(edited(edit))
    assert codes(findings) == expected
    assert text in "\n".join(map(str, findings))
    assert {finding.severity for finding in findings} == {"error"}
    assert all(finding.hint for finding in findings)


def test_a_v_schedule_needs_its_placement() -> None:
    manifest = edited(lambda v: v["schedule"].update(name="ZBVZeroBubble"), INTERLEAVED)
    [finding] = check_build(manifest)
    assert (finding.code, finding.where.rank) == ("PPC527", 0)
    assert (finding.expected, finding.found) == ("stages 0, 3 on rank 0", "stages 0, 2 on rank 0")


def test_an_unused_parameter_is_a_warning() -> None:
    [finding] = check_build(edited(add_unused_parameter))
    assert (finding.code, finding.severity) == ("PPC507", "warning")
    assert finding.where.field == "layers.1.unused"


CONTENT: dict[str, tuple[Edit, str]] = {
    "split": (lambda v: stage(v, 1)["modules"].reverse(), "split[1]"),
    "schedule": (lambda v: exchange(actions(v, 0), "0F6", "0B3"), "schedule.table"),
    "mesh": (lambda v: v["mesh"]["sizes"].__setitem__(1, 2), "mesh"),
    "input": (
        lambda v: stage(v, 0)["arguments"][0]["tensor"].update(dtype="int32"),
        "inputs.stage[0].0",
    ),
    "environment": (lambda v: v["environment"].update(torch="2.15.0"), "environment.torch"),
}


@pytest.mark.parametrize("name", CONTENT)
def test_content_under_the_key_of_another_build_is_found(name: str) -> None:
    edit, field = CONTENT[name]
    findings = check_build(edited(edit, rekey=False))
    assert field in {finding.where.field for finding in findings if finding.code == "PPC509"}


def test_a_factor_that_nothing_stands_for_is_found() -> None:
    def add(value: Plain) -> None:
        value["factors"]["split[4]"] = "layers.6"

    manifest = edited(add, rekey=False)
    # The other checks would not run on an id that is not the digest of the factors.
    [finding] = check_build(rekey_only(manifest))
    assert (finding.code, finding.found, finding.expected) == ("PPC509", "none", "layers.6")


def rekey_only(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, build_id=build_id(manifest.factors))


def test_a_contradictory_manifest_is_not_looked_at_further() -> None:
    findings = check_build(edited(lambda v: v.update(build_id="0" * 64), rekey=False))
    assert codes(findings) == {"PPC205"}


def test_another_format_is_named() -> None:
    findings = check_build(edited(lambda v: v.update(format=1), rekey=False))
    assert [(f.code, f.expected, f.found) for f in findings] == [
        ("PPC206", f"format {FORMAT}", "format 1")
    ]


def test_ranks_and_stages_that_are_not_there_are_found() -> None:
    findings = check_build(PP4, stages=[0, 7], ranks=[3, 4])
    assert [(f.code, f.found) for f in findings] == [("PPC533", "4"), ("PPC105", "7")]


def test_thousands_of_faults_make_a_readable_list() -> None:
    manifest = edited(lambda v: v["schedule"].update(microbatches=4096))
    found = [f for f in check_build(manifest) if f.code == "PPC521"]
    assert len(found) == 21
    assert found[-1].found == f"{4 * (4096 - 8)} faults in all"


def test_a_claim_of_endless_microbatches_ends() -> None:
    manifest = edited(lambda v: v["schedule"].update(microbatches=2**62))
    codes_found = codes(check_build(manifest))
    assert codes_found == {"PPC003", "PPC521"}
    written = edited(communication(lambda v: v["schedule"].update(microbatches=2**62)))
    assert codes(check_build(written)) == {"PPC003", "PPC521", "PPC523"}


def test_every_code_of_the_block_has_a_case() -> None:
    tested = {code for _, expected, _ in CASES.values() for code in expected}
    tested |= {"PPC509", "PPC533"}
    assert {code for code in CODES if code.startswith("PPC5")} == {
        code for code in tested if code.startswith("PPC5")
    }
