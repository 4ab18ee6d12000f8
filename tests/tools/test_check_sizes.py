from pathlib import Path

import pytest

from tools import check_sizes

ROOT = Path(__file__).resolve().parents[2]


def problems(root: Path, files: dict[str, str]) -> list[str]:
    """Write ``files`` (module path below the package → text) and return what is reported."""
    for name, text in files.items():
        path = root / "pp_precompile" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(problem) for problem in check_sizes.check(root)]


def test_this_repository_keeps_the_rules() -> None:
    assert check_sizes.check(ROOT) == []


@pytest.mark.parametrize(("lines", "reported"), [(400, False), (401, True)])
def test_file_length(tmp_path: Path, lines: int, reported: bool) -> None:
    found = problems(tmp_path, {"store/big": "x = 1\n" * lines})
    assert found == (
        ["pp_precompile/store/big.py:1: 401 lines, at most 400 are allowed"] if reported else []
    )


@pytest.mark.parametrize("head", ["def f():\n", "async def f():\n"])
@pytest.mark.parametrize(("body", "reported"), [(79, False), (80, True)])
def test_function_length(tmp_path: Path, head: str, body: int, reported: bool) -> None:
    text = "import os\n\n" + head + "    x = 1\n" * body
    found = problems(tmp_path, {"stage/long": text})
    assert found == (
        ["pp_precompile/stage/long.py:3: f has 81 lines, at most 80 are allowed"]
        if reported
        else []
    )


def test_decorators_and_methods_count_as_part_of_a_function(tmp_path: Path) -> None:
    text = "class A:\n    @property\n    def f(self):\n" + "        x = 1\n" * 79
    assert problems(tmp_path, {"stage/long": text}) == [
        "pp_precompile/stage/long.py:2: f has 81 lines, at most 80 are allowed"
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "import pp_precompile.runtime.loader",
        "from pp_precompile.runtime import loader",
        "from pp_precompile import runtime",
        "from ..runtime import loader",
        "from .. import runtime",
        "import importlib\nimportlib.import_module('pp_precompile.runtime')",
    ],
)
def test_an_import_that_points_right_is_reported(tmp_path: Path, statement: str) -> None:
    found = problems(tmp_path, {"stage/trace": statement})
    assert len(found) == 1
    assert "runtime is to its right" in found[0]


def test_imports_inside_functions_and_for_types_count(tmp_path: Path) -> None:
    text = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from pp_precompile.stage import a\n"
        "def f():\n    from pp_precompile.cli import b\n"
    )
    found = problems(tmp_path, {"store/blob": text})
    assert [line.split(":")[1] for line in found] == ["3", "5"]


def test_relative_imports_of_a_package_file_start_at_the_package(tmp_path: Path) -> None:
    text = "from .blob import x\nfrom ..contract import y\nfrom ..titan import z\n"
    found = problems(tmp_path, {"store/__init__": text, "store/blob": "x = 1\n"})
    assert found == [
        "pp_precompile/store/__init__.py:3: "
        "store imports pp_precompile.titan.z: titan is to its right"
    ]


def test_imports_to_the_left_and_within_a_layer_are_free(tmp_path: Path) -> None:
    text = "from pp_precompile import __version__\n" + "".join(
        f"from pp_precompile.{layer} import x\n" for layer in check_sizes.LAYERS
    )
    assert problems(tmp_path, {"cli/main": text}) == []


def test_models_count_as_titan(tmp_path: Path) -> None:
    assert problems(tmp_path, {"models/llama3": "from pp_precompile.titan import x\n"}) == []
    assert len(problems(tmp_path, {"models/llama3": "from pp_precompile.cli import x\n"})) == 1
    assert len(problems(tmp_path, {"runtime/a": "from pp_precompile.models import x\n"})) == 2


def test_entry_points_may_import_everything_but_nobody_imports_them(tmp_path: Path) -> None:
    everything = "import torch\nfrom pp_precompile.cli import x\nfrom .titan import y\n"
    assert problems(tmp_path, {"train": everything, "__init__": everything}) == []
    found = problems(tmp_path, {"cli/main": "from pp_precompile import train\n"})
    assert len(found) == 1
    assert "above every layer" in found[0]


def test_modules_and_folders_outside_the_table_are_reported(tmp_path: Path) -> None:
    found = problems(tmp_path, {"util": "x = 1\n", "helpers/a": "x = 1\n"})
    assert len(found) == 2
    assert "folder helpers is no layer" in found[0]
    assert "util belongs to no layer" in found[1]


@pytest.mark.parametrize("layer", ["contract", "graph", "store"])
@pytest.mark.parametrize(
    "statement",
    [
        "import torch",
        "import torch.nn as nn",
        "from torch import nn",
        "from torch.nn import Module",
        "from torchtitan.config import Configurable",
        "def f():\n    import torch",
        "__import__('torch')",
    ],
)
def test_the_left_layers_never_import_torch(tmp_path: Path, layer: str, statement: str) -> None:
    found = problems(tmp_path, {f"{layer}/a": statement})
    assert len(found) == 1
    assert f"{layer} imports torch" in found[0]
    assert found[0].endswith("and must not")


def test_the_right_layers_may_import_torch(tmp_path: Path) -> None:
    text = "import torch\n"
    assert (
        problems(tmp_path, {"stage/a": text, "runtime/a": text, "titan/a": text, "cli/a": text})
        == []
    )


def test_names_that_only_start_like_torch_are_free(tmp_path: Path) -> None:
    assert problems(tmp_path, {"store/a": "import torchish\n"}) == []


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_sizes.main([str(tmp_path)]) == 2
    problems(tmp_path, {"store/a": "x = 1\n"})
    assert check_sizes.main([str(tmp_path)]) == 0
    problems(tmp_path, {"store/a": "import torch\n"})
    capsys.readouterr()
    assert check_sizes.main([str(tmp_path)]) == 1
    expected = "pp_precompile/store/a.py:1: store imports torch and must not\n"
    assert capsys.readouterr().out == expected
