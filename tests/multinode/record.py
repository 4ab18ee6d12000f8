"""Train as a rank of a cluster's node, one case after the other, and write down what happened.

Started by torchrun on every node. ``$RECORD_CASES`` names a JSON file with cases by name, each with
``arguments`` and a ``fault`` of a node, or none. All run in the same processes; unlike
:mod:`tests.e2e.record`, a refused case is followed by the next, and the last one's exit code is
this process's. ``$RECORD_GO`` names the file whose appearance ends a rank's pause. Each rank
records, beside what it records there, its host, what it said when it was refused, and the ranks
that it shares mesh dimensions with.
"""

import contextlib
import io
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.e2e import record as base

_fault: tuple[str, ...] = ("",)


def _here(kind: str) -> bool:
    """Tell whether this node, or every one, meets the current case's fault of this kind."""
    return _fault[0] == kind and _fault[-1] in (platform.node(), "all")


def _install_faults() -> None:
    """Put faults in place that act in the cases that ask for them, on the node that they name."""
    from pp_precompile.runtime import acquire, device

    real_cpu = device.cpu_device

    def cpu_device() -> Any:
        """Return a CPU without the widest vectors for ``other_cpu:NODE``."""
        narrow = {"capability": "sse2", "features": ("sse2",)}
        return msgspec.structs.replace(real_cpu(), **narrow) if _here("other_cpu") else real_cpu()

    device.cpu_device = cpu_device
    for point, name in (("exchange", "exchange"), ("load", "load_stages")):
        setattr(acquire, name, _pausing(point, getattr(acquire, name)))


def _pausing(point: str, real: Any) -> Any:
    """Say that this rank came to ``point``; for ``pause:POINT:NODE`` stay until told to go on."""

    def paused(*arguments: Any, **named: Any) -> Any:
        (base.folder / f"at_{point}_{os.environ['RANK']}").touch()
        while _here("pause") and _fault[1] == point and not Path(os.environ["RECORD_GO"]).exists():
            time.sleep(0.05)
        return real(*arguments, **named)

    return paused


def _record_mesh() -> None:
    """Record the ranks along each dimension of the mesh that this rank is part of."""
    from pp_precompile.titan.trainer import PrecompiledStages

    real = PrecompiledStages._pipeline

    def pipeline(self: Any, model: Any, **arguments: Any) -> Any:
        dims = arguments["parallel_dims"]
        base.record["mesh"] = {name: dims.get_mesh(name).mesh.tolist() for name in ("pp", "fsdp")}
        return real(self, model, **arguments)

    PrecompiledStages._pipeline = pipeline


class _Tee(io.StringIO):
    """Keep what is printed, and print it."""

    def write(self, text: str) -> int:
        sys.__stderr__.write(text)
        sys.__stderr__.flush()
        return super().write(text)

    def fileno(self) -> int:
        return sys.__stderr__.fileno()


def _run(name: str, arguments: list[str]) -> int:
    from pp_precompile.runtime import farewell
    from pp_precompile.train import main as train

    base.start_case(name)
    base.record["host"] = platform.node()
    said = _Tee()
    start = time.monotonic()
    leave = farewell.leave_together

    def note() -> None:
        # Libraries say other things there, before.
        text = said.getvalue()
        base.record["said"] = text[text.find("PPC") :] if "PPC" in text else ""
        base.record["seconds"] = time.monotonic() - start

    def leave_together(*parts: Any, **named: Any) -> bool:
        """Write before: a rank that waits for ranks that do not come is ended by its launcher."""
        note()
        base.write(None)
        return leave(*parts, **named)

    # Processes part once, so that one key is enough for them; here they meet again.
    farewell._KEY = f"leaving/{name}"
    farewell.leave_together = leave_together
    try:
        with contextlib.redirect_stderr(said):
            code = train(["--dump_folder", str(base.folder / "dump"), *arguments])
    finally:
        farewell.leave_together = leave
    note()
    base.write(code)
    return code


def main() -> int:
    """Run all cases and return the exit code of the last."""
    global _fault
    from pp_precompile.titan import cpu_platform

    cpu_platform.enable()
    import torch.distributed as dist

    base.record_metrics()
    base.share_meshes()
    _record_mesh()
    _install_faults()
    end, dist.destroy_process_group = dist.destroy_process_group, lambda *_: None
    code = 0
    for name, case in json.loads(Path(os.environ["RECORD_CASES"]).read_text()).items():
        _fault = tuple(case["fault"].split(":"))
        code = _run(name, case["arguments"])
    if code == 0:
        end()
    return code


if __name__ == "__main__":
    sys.exit(main())
