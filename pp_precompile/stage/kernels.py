"""Compiled C++ kernels travel inside the artifact.

Inductor looks a kernel up by a hash over the whole compiler command line, which names install
paths and probes the compiler. Here a kernel is known by its source text alone: recorded while a
program is compiled, served while it is loaded, so that loading needs no compiler and no path.

A kernel that the artifact does not carry is an error, never a reason to compile: the generated
source assumes the vector width of the machine that built it, and compiled for another one it
computes wrong numbers without a word.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from pp_precompile.contract.errors import LoadError
from pp_precompile.stage import private_torch

# Failed assertions in kernels name their source file, which lies below this user's cache folder
# under a name that depends on the install path; and headers, which lie where torch is installed.
_PREAMBLE = '#line 1 "kernel.cpp"\n'
_FLAG = f"-fmacro-prefix-map={Path(torch.__file__).parent}=torch"


def source_key(source: tuple[str, ...]) -> str:
    """Return the digest of a kernel's source texts, each framed by its length."""
    digest = hashlib.sha256()
    for text in source:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class Recorder:
    """The kernels that were compiled or looked up while it was active."""

    def __init__(self) -> None:
        """Start empty."""
        self._libraries: dict[str, Callable[[], Any]] = {}

    def add(self, key: str, library: Callable[[], Any]) -> None:
        """Remember ``library``, which returns the loaded kernel, under its source's key."""
        self._libraries[key] = library

    def kernels(self) -> dict[str, bytes]:
        """Return the shared objects' bytes by source key, without symbols that name paths."""
        return {key: _portable_bytes(_path(load())) for key, load in self._libraries.items()}


@contextlib.contextmanager
def record() -> Iterator[Recorder]:
    """Record every kernel that Inductor compiles inside the block."""
    recorder = Recorder()

    def make(cls: type, call: Callable[..., Any], source: tuple[str, ...]) -> Any:
        library = call(preamble=_PREAMBLE)
        recorder.add(source_key(source), library)
        return library

    with private_torch.compiler_flags(_FLAG), private_torch.patched_kernel_loading(make):
        yield recorder


@contextlib.contextmanager
def serve(kernels: Mapping[str, bytes]) -> Iterator[None]:
    """Answer every kernel request inside the block from ``kernels`` (verified bytes).

    Raises:
        LoadError: PPC303 inside the block, for a kernel that is not there.
    """

    def make(cls: type, call: Callable[..., Any], source: tuple[str, ...]) -> Any:
        key = source_key(source)
        if key not in kernels:
            raise LoadError(
                "PPC303",
                "a stored program asks for a kernel that it does not carry",
                expected=f"one of {len(kernels)} kernels",
                found=f"a kernel with source digest {key}",
                hint="build again with this version of torch; nothing was compiled in its place",
            )
        return _once(lambda: _load(cls, key, kernels[key]))

    with private_torch.patched_kernel_loading(make):
        yield


def _once(load: Callable[[], Any]) -> Callable[[], Any]:
    loaded: list[Any] = []

    def library() -> Any:
        if not loaded:
            loaded.append(load())
        return loaded[0]

    return library


_open_kernels: list[int] = []
"""Descriptors of loaded kernels. They stay open: the dynamic loader knows a library by its path,
so a number that came back for another kernel would silently give the first one."""


def _load(cls: type, key: str, data: bytes) -> Any:
    """Load a kernel from memory: no file that another process could exchange, no exec mount."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(f"pp_precompile-{key[:16]}", os.MFD_CLOEXEC)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        _open_kernels.append(descriptor)
        return private_torch.load_kernel_library(cls, f"/proc/self/fd/{descriptor}", key)
    with tempfile.TemporaryDirectory(prefix="pp_precompile-") as folder:
        path = Path(folder, f"{key}.so")
        path.write_bytes(data)
        return private_torch.load_kernel_library(cls, str(path), key)


def _path(library: Any) -> Path:
    return Path(getattr(library, "__file__", None) or library._name)


def _portable_bytes(path: Path) -> bytes:
    """Return the shared object without symbol and debugging tables, which hold absolute paths."""
    strip = shutil.which("strip")
    if strip is None:
        raise FileNotFoundError("strip (of binutils, which comes with the C++ compiler)")
    with tempfile.TemporaryDirectory(prefix="pp_precompile-") as folder:
        stripped = Path(folder, "kernel.so")
        command = [strip, "--strip-all", "-R", ".comment", "-R", ".note.gnu.build-id"]
        subprocess.run([*command, "-o", str(stripped), str(path)], check=True)
        return stripped.read_bytes()
