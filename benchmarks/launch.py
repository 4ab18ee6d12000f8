"""Start this project's two commands, build and train, as a user would."""

import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.outcome import Outcome, read_outcome
from benchmarks.process import run

TIMEOUT = 900.0
"""Seconds for one command: several times what a slow machine takes."""

OUTPUT, REPORTS = "train.txt", "reports"
"""What training leaves in its folder: the ranks' output, and a folder with their reports."""

_COMMAND = "import sys; from pp_precompile.cli import main; sys.exit(main(sys.argv[1:]))"


def build(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    store: Path,
    timeout: float = TIMEOUT,
) -> float:
    """Build into ``store`` and return the command's wall time in seconds.

    Raises:
        CommandError: if it fails or takes longer than ``timeout``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-c", _COMMAND, "build", *arguments),
        *("--compile.precompile_artifact_dir", str(store)),
        *("--dump_folder", str(folder / "dump")),
    ]
    return run(command, environment, output=folder / "build.txt", timeout=timeout)


def train(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    ranks: int,
    timeout: float = TIMEOUT,
    program: str = "benchmarks.recorded_train",
) -> Outcome:
    """Train under torchrun on this machine; output and reports stay in ``folder``.

    ``program`` is the module that every rank runs. Its output goes to :data:`OUTPUT`, its reports
    to :data:`REPORTS`.

    Raises:
        CommandError: if it fails or takes longer than ``timeout``.
        ValueError: if it succeeds without reporting what it should.
    """
    reports = folder / REPORTS
    reports.mkdir(parents=True)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)),
        *("--master-addr", "127.0.0.1", "--master-port", str(_free_port())),
        *("-m", program, *arguments),
        *("--dump_folder", str(folder / "dump")),
    ]
    environment = {**environment, "PP_PRECOMPILE_PHASES": str(reports)}
    wall = run(command, environment, output=folder / OUTPUT, timeout=timeout)
    return read_outcome(reports, ranks=ranks, wall=wall)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
