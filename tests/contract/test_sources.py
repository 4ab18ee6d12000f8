"""The sources of a model: all of its own files that imports reach, and nothing that is identified
elsewhere."""

import sys
from pathlib import Path

import pytest

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.installed import package_digest
from pp_precompile.contract.sources import source_digests

KNOWN = frozenset({"titanlike"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _write(folder: Path, **sources: str) -> None:
    """Write modules, whose dots are written as two underscores."""
    for name, text in sources.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _package(folder: Path, *names: str) -> None:
    for name in names:
        path = folder.joinpath(*name.split("."), "__init__.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n", encoding="utf-8")


def _found(folder: Path, name: str = "ours_model") -> dict[str, str]:
    return source_digests({name: folder / f"{name}.py"}, known=KNOWN)


@pytest.mark.parametrize(
    "statement",
    [
        "import ours_helper",
        "import ours_helper as h, json",
        "from ours_helper import scaled",
        "from ours_helper import *",
        "def forward(x):\n    from ours_helper import scaled\n    return scaled(x)",
        "try:\n    import ours_helper\nexcept ImportError:\n    ours_helper = None",
        "if True:\n    class A:\n        import ours_helper",
    ],
)
def test_however_it_is_imported(folder: Path, statement: str) -> None:
    _write(folder, ours_model=statement, ours_helper="FACTOR = 2\n")
    before = _found(folder)
    assert before == {
        "ours_model": digest_bytes(statement.encode()),
        "ours_helper": digest_bytes(b"FACTOR = 2\n"),
    }
    _write(folder, ours_helper="FACTOR = 3\n")
    after = _found(folder)
    assert {name for name in before if before[name] != after[name]} == {"ours_helper"}
    assert not {"ours_model", "ours_helper"} & set(sys.modules)  # nothing was imported for it


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("from . import near", {"ours.deep.near"}),
        ("from .near import x", {"ours.deep.near"}),
        ("from .. import far", {"ours.far"}),
        ("from ..far import x", {"ours.far"}),
        ("from ..other import leaf", {"ours.other", "ours.other.leaf"}),
        ("import ours.other.leaf", {"ours.other", "ours.other.leaf"}),
        ("from .... import far", set()),
        ("from .absent import x", set()),
    ],
)
def test_packages(folder: Path, statement: str, found: set[str]) -> None:
    """Importing a module runs the packages above it, so their files count."""
    _package(folder, "ours", "ours.deep", "ours.other")
    _write(folder, ours__deep__near="", ours__far="", ours__other__leaf="")
    _write(folder, ours__deep__model=statement)
    model = {"ours.deep.model": folder / "ours" / "deep" / "model.py"}
    digests = source_digests(model, known=KNOWN)
    assert set(digests) == {"ours.deep.model", "ours.deep", "ours"} | found


def test_a_package_is_followed_from_its_own_file(folder: Path) -> None:
    _package(folder, "ours")
    (folder / "ours" / "__init__.py").write_text("from .near import x\n", encoding="utf-8")
    _write(folder, ours__near="")
    digests = source_digests({"ours": folder / "ours" / "__init__.py"}, known=KNOWN)
    assert set(digests) == {"ours", "ours.near"}


def test_a_folder_without_init_is_a_package_too(folder: Path) -> None:
    _write(folder, ours_model="import plain_folder.helper", plain_folder__helper="")
    assert set(_found(folder)) == {"ours_model", "plain_folder.helper"}


def test_files_that_import_each_other(folder: Path) -> None:
    _write(folder, ours_model="import ours_two", ours_two="import ours_three")
    _write(folder, ours_three="import ours_model")
    assert set(_found(folder)) == {"ours_model", "ours_two", "ours_three"}


def test_what_is_no_python_counts_and_leads_nowhere(folder: Path) -> None:
    _write(folder, ours_model="import ours_broken", ours_broken="import ours_far\nthis was none\n")
    _write(folder, ours_far="")
    assert set(_found(folder)) == {"ours_model", "ours_broken"}


def test_what_is_identified_elsewhere_is_left_out(folder: Path) -> None:
    _package(folder, "titanlike")
    _write(folder, ours_model="import json, sys, titanlike.layers", titanlike__layers="import far")
    _write(folder, far="")
    assert set(_found(folder)) == {"ours_model"}
    # As a model's own file it counts by itself, and leads nowhere.
    model = {"titanlike.layers": folder / "titanlike" / "layers.py"}
    assert set(source_digests(model, known=KNOWN)) == {"titanlike.layers"}


def test_an_installed_package_counts_as_a_whole(folder: Path) -> None:
    _write(folder, ours_model="import networkx.algorithms\nfrom networkx import DiGraph\n")
    found = _found(folder)
    assert set(found) == {"ours_model", "networkx"}
    assert found["networkx"] == package_digest("networkx") != ""


def test_an_installed_module_counts_as_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(folder / "site-packages", alone="FACTOR = 2\n")
    monkeypatch.syspath_prepend(str(folder / "site-packages"))
    _write(folder, ours_model="import alone")
    assert _found(folder)["alone"] == digest_bytes(b"FACTOR = 2\n")
