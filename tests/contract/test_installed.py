"""What is installed: one digest for one wheel, wherever and by whom it was installed."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from pp_precompile.contract.installed import installed_version, package_digest, wheel_files

PIP = """../../../bin/torchrun,sha256=one,231
torch-2.14.1.dist-info/INSTALLER,sha256=pip,4
torch-2.14.1.dist-info/METADATA,sha256=meta,37834
torch-2.14.1.dist-info/RECORD,,
torch-2.14.1.dist-info/REQUESTED,sha256=,0
torch/__init__.py,sha256=init,9
torch/__pycache__/__init__.cpython-311.pyc,,
torch/lib/libtorch.so,sha256=lib,99
"""
UV = """torch-2.14.1.dist-info/INSTALLER,sha256=uv,2
torch-2.14.1.dist-info/METADATA,sha256=meta,37834
torch-2.14.1.dist-info/RECORD,,
torch-2.14.1.dist-info/uv_cache.json,sha256=cache,2
torch/lib/libtorch.so,sha256=lib,99
torch/__init__.py,sha256=init,9
../../../bin/torchrun,sha256=other,240
"""


def test_two_installers_and_two_places_leave_the_same_files() -> None:
    assert wheel_files(PIP) == wheel_files(UV)
    assert wheel_files(PIP) == [
        "torch-2.14.1.dist-info/METADATA,sha256=meta,37834",
        "torch/__init__.py,sha256=init,9",
        "torch/lib/libtorch.so,sha256=lib,99",
    ]


@pytest.mark.parametrize("change", ["sha256=init", "sha256=lib", "torch/lib/", "sha256=meta"])
def test_another_file_of_the_wheel_is_another_list(change: str) -> None:
    assert wheel_files(PIP.replace(change, f"{change}x")) != wheel_files(PIP)


def test_what_is_not_installed_has_neither_version_nor_digest() -> None:
    assert installed_version("not-installed-anywhere") == ""
    assert package_digest("not_installed_anywhere") == ""
    assert len(package_digest("torch")) == 64


WHEEL = {
    "answering/__init__.py": "def main():\n    print(42)\n",
    "answering-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: answering\nVersion: 1.0\n",
    "answering-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
    "answering-1.0.dist-info/entry_points.txt": "[console_scripts]\nanswer = answering:main\n",
    "answering-1.0.dist-info/RECORD": "".join(
        f"{name},,\n"
        for name in (
            "answering/__init__.py",
            "answering-1.0.dist-info/METADATA",
            "answering-1.0.dist-info/WHEEL",
            "answering-1.0.dist-info/entry_points.txt",
            "answering-1.0.dist-info/RECORD",
        )
    ),
}
READ = """
from pp_precompile.contract.installed import package_digest
print(package_digest("answering"))
assert "answering" not in sys.modules
"""


def test_a_wheel_with_a_script_in_two_environments_has_one_digest(tmp_path: Path) -> None:
    """Real pip and two environments, whose scripts name each its own Python."""
    wheel = _wheel(tmp_path)
    folders = [tmp_path / "one", tmp_path / "two" / "deeper"]
    digests = {_installed(wheel, folder) for folder in folders}
    scripts = {(folder / "bin" / "answer").read_text() for folder in folders}
    assert len(scripts) == 2
    assert len(digests) == 1
    assert all(len(digest) == 64 for digest in digests)
    # A checkout on PYTHONPATH comes before what is installed, and is what the job imports.
    checkout = _checkout(tmp_path / "checkout", "FACTOR = 2\n")
    [site] = folders[0].glob("lib/python*/site-packages")
    assert _digest(checkout, site) == _digest(checkout) not in digests


def _wheel(folder: Path) -> Path:
    wheel = folder / "answering-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in WHEEL.items():
            archive.writestr(name, text)
    return wheel


def _installed(wheel: Path, folder: Path) -> str:
    """Install ``wheel`` into a new environment and return its digest there."""
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    assert subprocess.run(install, timeout=120, check=False).returncode == 0
    [site] = folder.glob("lib/python*/site-packages")
    return _digest(site)


def _digest(*folders: Path) -> str:
    """Return the package's digest for a process that imports from ``folders`` first."""
    paths = f"import sys; sys.path[:0] = {[str(folder) for folder in folders]!r}"
    command = [sys.executable, "-c", f"{paths}{READ}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _checkout(folder: Path, helper: str) -> Path:
    (folder / "answering" / "deep").mkdir(parents=True)
    (folder / "answering" / "__init__.py").write_text("def main():\n    print(42)\n")
    (folder / "answering" / "deep" / "helper.py").write_text(helper)
    return folder


def test_a_checkout_is_known_by_its_sources(tmp_path: Path) -> None:
    one = _checkout(tmp_path / "one", "FACTOR = 2\n")
    same = _checkout(tmp_path / "elsewhere", "FACTOR = 2\n")
    other = _checkout(tmp_path / "other", "FACTOR = 3\n")
    assert _digest(one) == _digest(same) != _digest(other)


def test_an_editable_installation_is_known_by_its_sources(tmp_path: Path) -> None:
    """Its RECORD lists a path file and no source, and would not change with one."""
    checkout = _checkout(tmp_path / "checkout", "FACTOR = 2\n")
    site = tmp_path / "site"
    info = site / "answering-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(WHEEL["answering-1.0.dist-info/METADATA"])
    (info / "RECORD").write_text("__editable__.answering.pth,sha256=x,9\n")
    assert _digest(site, checkout) == _digest(checkout)
