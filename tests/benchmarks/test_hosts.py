import os
import shutil
from pathlib import Path

import pytest

from benchmarks import hosts

CROWDED = {
    "PATH": os.environ["PATH"],
    "LANG": "C.UTF-8",
    "CXX": "g++",
    "HOME": "/somewhere",
    "TORCHINDUCTOR_CACHE_DIR": "/warm/cache",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
    "PP_PRECOMPILE_DIR": "/some/store",
    "PYTHONPATH": "/some/code",
    "WORLD_SIZE": "8",
}


def tool(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("make", [hosts.building_host, hosts.bare_host])
def test_a_fresh_host_has_empty_folders_of_its_own_and_no_foreign_settings(
    make: object, tmp_path: Path
) -> None:
    environment = make(tmp_path / "host", CROWDED)  # type: ignore[operator]
    for name in ("TORCHINDUCTOR_FX_GRAPH_CACHE", "PP_PRECOMPILE_DIR", "PYTHONPATH", "WORLD_SIZE"):
        assert name not in environment
    for name in ("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME"):
        place = Path(environment[name])
        assert place.is_relative_to(tmp_path)
        assert list(place.iterdir()) == []
    assert environment["LANG"] == "C.UTF-8"
    assert environment["OMP_NUM_THREADS"] == "1"


def test_a_building_host_keeps_the_machines_compiler(tmp_path: Path) -> None:
    environment = hosts.building_host(tmp_path, CROWDED)
    assert (environment["PATH"], environment["CXX"]) == (CROWDED["PATH"], "g++")


def test_a_bare_host_finds_a_shell_and_no_compiler(tmp_path: Path) -> None:
    environment = hosts.bare_host(tmp_path, CROWDED)
    assert "CXX" not in environment
    assert shutil.which("sh", path=environment["PATH"])
    assert [n for n in hosts.COMPILERS if shutil.which(n, path=environment["PATH"])] == []


def test_a_bare_host_with_a_compiler_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "tools", "clang")
    monkeypatch.setattr(hosts, "_bare_path", lambda folder: tmp_path / "tools")
    with pytest.raises(RuntimeError, match="finds clang"):
        hosts.bare_host(tmp_path / "host", CROWDED)


def test_a_host_is_used_once(tmp_path: Path) -> None:
    hosts.building_host(tmp_path, CROWDED)
    with pytest.raises(FileExistsError):
        hosts.building_host(tmp_path, CROWDED)
