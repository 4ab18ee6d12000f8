from pathlib import Path

from tools.check_toolchain import find_problems

GXX = "/usr/bin/g++"
STRIP = "/usr/bin/strip"


def include(folder: Path) -> str:
    (folder / "Python.h").touch()
    return str(folder)


def test_a_complete_machine_has_no_problems(tmp_path: Path) -> None:
    assert find_problems((3, 10, 0), "linux", GXX, STRIP, include(tmp_path)) == []


def test_an_old_python_is_named_with_the_way_out(tmp_path: Path) -> None:
    (text,) = find_problems((3, 9, 2), "linux", GXX, STRIP, include(tmp_path))
    assert text.startswith("python 3.9 is too old: 3.10 or newer is needed")
    assert "make PYTHON=" in text


def test_a_missing_compiler_says_that_only_building_needs_it(tmp_path: Path) -> None:
    (text,) = find_problems((3, 11, 0), "linux", None, STRIP, include(tmp_path))
    assert "no C++ compiler found" in text
    assert "loading does not" in text


def test_a_missing_strip_is_named_with_its_package(tmp_path: Path) -> None:
    (text,) = find_problems((3, 11, 0), "linux", GXX, None, include(tmp_path))
    assert text.startswith("strip not found")
    assert "binutils" in text


def test_missing_headers_are_named(tmp_path: Path) -> None:
    (text,) = find_problems((3, 11, 0), "linux", GXX, STRIP, str(tmp_path))
    assert text.startswith("Python.h not found")


def test_other_platforms_find_their_own_compiler(tmp_path: Path) -> None:
    assert find_problems((3, 11, 0), "darwin", None, None, str(tmp_path)) == []
