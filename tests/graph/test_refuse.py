"""Findings become one error: code of the first, every error listed, warnings let pass."""

import pytest

from pp_precompile.contract.errors import CompileError, StaleBuildError, Where
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.refuse import refuse


def finding(code: str, **parts: object) -> Finding:
    known = {"message": f"message of {code}", "expected": "this", "found": "that", "hint": "act"}
    return Finding(code=code, **(known | parts))  # type: ignore[arg-type]


def test_nothing_and_warnings_pass() -> None:
    refuse([], "build X")
    refuse([finding("PPC102", severity="warning")], "build X")


def test_one_finding_is_the_error() -> None:
    with pytest.raises(StaleBuildError) as caught:
        refuse([finding("PPC501", where=Where(stage=2, field="arguments"))], "build X")
    assert str(caught.value) == (
        "PPC501: build X: message of PPC501 (stage 2, field arguments)\n"
        "  expected: this\n  found:    that\n  next:     act"
    )
    assert caught.value.exit_code == 1


def test_several_findings_are_all_listed_under_the_first_code() -> None:
    findings = [finding("PPC102"), finding("PPC507", severity="warning"), finding("PPC501")]
    with pytest.raises(CompileError) as caught:
        refuse(findings, "build X", error=CompileError)
    text = str(caught.value)
    assert text.startswith("PPC102: build X does not fit in 2 ways:\n  PPC102: message of PPC102\n")
    assert "\n  PPC501: message of PPC501\n    expected: this\n" in text
    assert "PPC507" not in text


def test_a_long_list_is_cut() -> None:
    with pytest.raises(StaleBuildError, match="and 80 more"):
        refuse([finding("PPC605")] * 100, "build X")


def test_an_unknown_code_cannot_be_reported() -> None:
    with pytest.raises(KeyError):
        finding("PPC999")


def test_names_are_listed_up_to_a_limit() -> None:
    assert listed([]) == "none"
    assert listed(range(6)) == "0, 1, 2, 3, 4, 5"
    assert listed(range(9)) == "0, 1, 2, 3, 4, 5 and 3 more"
