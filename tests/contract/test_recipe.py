"""Recipe files: what an argument ``@FILE`` stands for."""

from pathlib import Path

import pytest

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.recipe import expand


def write(folder: Path, text: str, name: str = "demo.args") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return f"@{folder / name}"


def test_arguments_without_a_file_stay_as_they_are() -> None:
    argv = ["build", "--flag", "a@b", "@", "", "--x=@file"]
    assert expand(argv) == argv


def test_a_file_stands_for_its_words_in_its_place(tmp_path: Path) -> None:
    recipe = write(
        tmp_path,
        "# the model\n--module m   --config 'two words'\n\n--steps 3 # few\n--name \"a # b\"\n",
    )
    assert expand(["train", recipe, "--last"]) == [
        "train",
        *("--module", "m", "--config", "two words"),
        *("--steps", "3", "--name", "a # b"),
        "--last",
    ]


def test_several_files(tmp_path: Path) -> None:
    first, second = write(tmp_path, "--a", "a"), write(tmp_path, "--b", "b")
    assert expand([first, "x", second]) == ["--a", "x", "--b"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("--name 'open\n", "No closing quotation"), ("--name \\", "No escaped character")],
)
def test_a_line_that_no_shell_would_split_is_refused(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand([write(tmp_path, text)])
    assert (caught.value.code, caught.value.exit_code) == ("PPC001", 2)
    assert found in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        expand([f"@{tmp_path / 'gone.args'}"])
    text = str(caught.value)
    assert text.startswith(f"PPC001: cannot read the recipe file {tmp_path / 'gone.args'}")
    assert "expected: lines of arguments, '#' for comments" in text
    assert "No such file" in text
    assert "next:     check the path after '@'" in text


@pytest.mark.parametrize("name", ["with\0nul", "."])
def test_a_name_that_cannot_be_a_file(name: str) -> None:
    with pytest.raises(UsageError, match="PPC001: cannot read"):
        expand([f"@{name}"])


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="PPC001: cannot read"):
        expand([f"@{tmp_path / 'x'}"])


def test_a_file_in_a_file_is_refused(tmp_path: Path) -> None:
    inner = write(tmp_path, "--a", "inner")
    with pytest.raises(UsageError) as caught:
        expand([write(tmp_path, f"--b {inner}", "outer")])
    assert caught.value.found == inner
    assert "put both files on the command line" in str(caught.value)
