"""docs/format.md says what a program of each role takes and returns, as the check has it."""

from pp_precompile.contract.program import ROLES
from pp_precompile.graph.conventions import INPUTS, OUTPUTS
from tests.pages import quoted, table

ROWS = table("format.md", "role", "takes", "returns")


def test_the_page_has_every_role_in_the_order_of_use() -> None:
    assert list(ROWS) == list(ROLES) == list(INPUTS) == list(OUTPUTS)


def test_the_page_has_the_kinds_of_every_role() -> None:
    assert {role: tuple(quoted(cells[0])) for role, cells in ROWS.items()} == INPUTS
    assert {role: tuple(quoted(cells[1])) for role, cells in ROWS.items()} == OUTPUTS
