"""docs/errors.md against the code: the same codes with the same meanings."""

from pp_precompile.contract.errors import CODES
from tests.pages import table

ROWS = table("errors.md", "code", "meaning", "typical cause", "what to do")


def test_the_page_has_every_code_with_its_meaning() -> None:
    assert {code: cells[0] for code, cells in ROWS.items()} == CODES
    assert list(ROWS) == list(CODES)


def test_every_code_has_a_cause_and_a_way_out() -> None:
    assert [code for code, cells in ROWS.items() if not (cells[1] and cells[2])] == []
