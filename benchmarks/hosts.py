"""Environments of hosts on which this project has never run.

A host is a folder: its home, caches and temporary files lie below it and start empty. Of the
environment that a benchmark was started in almost nothing passes, so that no cache, flag or
compiler of this machine helps by accident. What stays warm is what a process cannot empty: the
kernel's page cache of installed packages, and their bytecode.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

COMPILERS = ("g++", "gcc", "c++", "cc", "clang", "clang++", "nvcc", "ld", "as", "strip")
"""What a host without a compiler must not find."""

_PASSED = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
_PASSED_TO_BUILDERS = ("PATH", "CXX")

_BARE_TOOLS = ("sh", "env", "uname")
"""What even a small container has; torch and Python look for these at start."""

THREADS_PER_RANK = 1
"""torchrun's default for several ranks; set here so that one rank gets the same."""


def building_host(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a fresh host with this machine's compiler."""
    passed = {name: environ[name] for name in _PASSED_TO_BUILDERS if name in environ}
    return _fresh(folder, environ) | passed


def bare_host(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a fresh host without any compiler.

    Raises:
        RuntimeError: if a compiler can be found all the same.
    """
    environment = _fresh(folder, environ) | {"PATH": str(_bare_path(folder))}
    found = [name for name in COMPILERS if shutil.which(name, path=environment["PATH"])]
    if found:
        raise RuntimeError(f"the host that should have no compiler finds {', '.join(found)}")
    return environment


def _fresh(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what all fresh hosts share, and make the folders that it names."""
    places = {
        "HOME": folder / "home",
        "TMPDIR": folder / "tmp",
        "TORCHINDUCTOR_CACHE_DIR": folder / "inductor",
        "TRITON_CACHE_DIR": folder / "triton",
        "XDG_CACHE_HOME": folder / "cache",
        "XDG_CONFIG_HOME": folder / "config",
        "XDG_DATA_HOME": folder / "data",
    }
    for place in places.values():
        place.mkdir(parents=True)
    passed = {name: environ[name] for name in _PASSED if name in environ}
    settings = {"OMP_NUM_THREADS": str(THREADS_PER_RANK), "TOKENIZERS_PARALLELISM": "false"}
    return passed | settings | {name: str(place) for name, place in places.items()}


def _bare_path(folder: Path) -> Path:
    tools = folder / "bin"
    tools.mkdir()
    for name in _BARE_TOOLS:
        tool = shutil.which(name, path=os.defpath)
        if tool is not None:
            (tools / name).symlink_to(tool)
    return tools
