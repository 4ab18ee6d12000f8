"""Load a stored stage under an audit hook, and print what ran: ``python -m tests.runtime.audited``.

A process of its own, since a hook cannot be removed. Its arguments are a store, a file with the
encoded record of a stage, and what to do: ``good``, ``damaged`` or ``unverified``.
"""

import contextlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.encoding import decode
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.program import BlobRef
from pp_precompile.contract.stage import StageRecord
from pp_precompile.runtime.loader import ReadBlob, load_stage
from pp_precompile.store.store import open_store

CACHE = os.environ["TORCHINDUCTOR_CACHE_DIR"]
"""Where Inductor writes, and imports from, the Python source that comes in a blob."""


class Watch:
    """What ran since loading started, and whether it came from bytes that were verified before.

    ``seen`` counts events by kind. ``unverified`` are those whose bytes are part of no blob whose
    digest was checked until then.
    """

    def __init__(self) -> None:
        self.on = False
        self.verified: list[bytes] = []
        self.seen: dict[str, int] = {}
        self.unverified: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.verified, self.seen, self.unverified, self.on = [], {}, [], True
        try:
            yield
        finally:
            self.on = False

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take in one audit event; events of the watch's own making do not count."""
        if not self.on or event not in _BYTES:
            return
        self.on = False
        try:
            data = _BYTES[event](*arguments)
            if data is not None:
                self.take(event, data)
        finally:
            self.on = True

    def take(self, event: str, data: bytes) -> None:
        self.seen[event] = self.seen.get(event, 0) + 1
        if not any(data in blob for blob in self.verified):
            self.unverified.append(f"{event} of {data[:80]!r}")

    def reading(self, read: ReadBlob) -> ReadBlob:
        """Note the bytes that ``read`` returns, if they are those that are asked for."""

        def noted(ref: BlobRef) -> bytes:
            data = read(ref)
            if digest_bytes(data) == ref.digest:
                self.verified.append(data)
            return data

        return noted

    def unpickling(self, loads: Callable[..., Any]) -> Callable[..., Any]:
        """Note what is unpickled: the events name the classes that are looked up, not the bytes."""

        def noted(data: bytes, **options: Any) -> Any:
            if self.on:
                self.take("unpickle", bytes(data))
            return loads(data, **options)

        return noted


def _of_class(module: str, name: str) -> bytes:
    return name.rpartition(".")[2].encode()


def _of_marshal(data: bytes, *_: Any) -> bytes | None:
    # An installed module's bytecode, read from beside it, begins as a code object does.
    return None if _importing() else bytes(data)


def _importing() -> bool:
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap_external>":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _of_library(name: Any) -> bytes | None:
    return Path(os.fsdecode(name)).read_bytes() if name and "/" in os.fsdecode(name) else None


def _of_import(_: str, path: str | None, *__: Any) -> bytes | None:
    """An extension module has a path; one of the installed ones is none of ours."""
    installed = path is None or path.startswith((sys.prefix, sys.base_prefix))
    return None if installed or path is None else Path(path).read_bytes()


def _of_code(code: Any) -> bytes | None:
    return Path(code.co_filename).read_bytes() if code.co_filename.startswith(CACHE) else None


def _of_source(source: Any, filename: Any) -> bytes | None:
    if not str(filename).startswith(CACHE) or source is None:
        return None
    return source if isinstance(source, bytes) else str(source).encode()


_BYTES: dict[str, Callable[..., bytes | None]] = {
    "pickle.find_class": _of_class,
    "marshal.loads": _of_marshal,
    "ctypes.dlopen": _of_library,
    "import": _of_import,
    "exec": _of_code,
    "compile": _of_source,
}
"""The bytes that an event is about, by event; None if they are of the installed software."""


def _flipped(path: Path, position: int) -> bytes:
    whole = path.read_bytes()
    data = bytearray(whole)
    data[position] ^= 1
    path.write_bytes(data)
    return whole


def _load(watch: Watch, record: StageRecord, read: ReadBlob) -> dict[str, Any]:
    code, loaded = None, 0
    with watch.watching():
        try:
            loaded = len(load_stage(record, watch.reading(read)).programs)
        except PrecompileError as error:
            code = error.code
    return {
        "code": code,
        "loaded": loaded,
        "verified": len(watch.verified),
        "seen": watch.seen,
        "unverified": watch.unverified,
    }


def main(folder: str, record_file: str, how: str) -> None:
    """Print a report for each load: one of a good stage, or one for each damaged byte."""
    store = open_store(Path(folder), create=False)
    record = decode(Path(record_file).read_bytes(), StageRecord, what="the record")
    watch = Watch()
    sys.addaudithook(watch.hook)
    pickle.loads = watch.unpickling(pickle.loads)
    reports = []
    if how == "good":
        reports.append(_load(watch, record, store.blobs.get))
    for role, program in record.programs.items() if how != "good" else ():
        alone = msgspec.structs.replace(record, programs={role: program})
        path, size = store.blobs.path(program.blob.digest), program.blob.size
        read = (
            store.blobs.get
            if how == "damaged"
            else lambda ref: store.blobs.path(ref.digest).read_bytes()
        )
        for position in (0, 8, size // 4, size // 2, size - 200, size - 1):
            whole = _flipped(path, position)
            reports.append({"role": role, "position": position, **_load(watch, alone, read)})
            path.write_bytes(whole)
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
