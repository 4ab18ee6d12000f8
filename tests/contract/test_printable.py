import pytest

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("a\rb\x00", "a\\x0db\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("Maße, 2×8\n\tlayers.0", "Maße, 2×8\n\tlayers.0"),
    ],
)
def test_only_what_steers_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_errors_are_printable_whatever_they_quote() -> None:
    error = PrecompileError("PPC605", "\x1b]0;x\x07", expected="\x1b[1m", found="\x9b", hint="\r")
    assert not {"\x1b", "\x07", "\x9b", "\r"} & set(str(error))
    assert "\\x1b]0;x\\x07" in str(error)
