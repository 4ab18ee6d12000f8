"""Start ranks and commands as processes of their own, with a hard end."""

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.process import MARK, kill_marked

ROOT = Path(__file__).parents[2]
TIMEOUT = 400
"""Seconds after which everything that was started is killed and the test fails."""

_KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "TMPDIR", "VIRTUAL_ENV")
COMPILERS = ("g++", "gcc", "c++", "cc", "clang", "clang++", "strip", "ld", "as")


_COUNTED_BY_LOADING = {"inductor": {"fxgraph_lookup_write_file"}}
"""What Inductor counts when it only loads: the Python wrapper written to the cache folder."""


@dataclass(frozen=True)
class Result:
    """What a process (and, under torchrun, its ranks) left behind."""

    code: int
    output: str
    ranks: dict[int, dict[str, Any]]

    def rank(self, rank: int) -> dict[str, Any]:
        """Return what a rank recorded, failing with the output if it recorded nothing."""
        assert rank in self.ranks, self.output[-6000:]
        return self.ranks[rank]

    @property
    def own_output(self) -> str:
        """The output up to torchrun's own report, which repeats the first failure."""
        lines = self.output.splitlines()
        end = next((i for i, line in enumerate(lines) if "failed (exitcode" in line), len(lines))
        return "\n".join(lines[:end])

    def compiler_counts(self, rank: int) -> dict[str, set[str]]:
        """Return what dynamo, AOTAutograd and Inductor counted beyond loading."""
        counted = {
            group: set(values) - _COUNTED_BY_LOADING.get(group, set())
            for group, values in self.rank(rank)["torch"].items()
        }
        return {group: names for group, names in counted.items() if names}

    def same_numbers(self, other: "Result") -> bool:
        """Tell whether all ranks report the same losses and gradient norms, bit for bit."""
        return bool(self.ranks) and all(
            self.rank(r)[what] == other.rank(r)[what]
            for r in self.ranks
            for what in ("losses", "grad_norms")
        )

    def losses(self) -> list[float]:
        """Return the losses of a rank with the last stage; other ranks report negative ones."""
        all_losses = [[float.fromhex(t) for t in r["losses"]] for r in self.ranks.values()]
        last = [losses for losses in all_losses if losses and losses[0] > 0]
        assert last, self.output[-6000:]
        return last[-1]


def run(command: Sequence[str], environment: dict[str, str], *, timeout: int = TIMEOUT) -> Result:
    """Run ``command``; kill all that it started when it is over or late."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        command,
        env=environment | {MARK: mark},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        kill_marked(mark, process.pid)
        output, _ = process.communicate()
        raise AssertionError(f"no end after {timeout} s:\n{output[-6000:]}") from error
    finally:
        kill_marked(mark, process.pid)
    return Result(process.returncode, output, {})


def environment(cache: Path, **extra: str) -> dict[str, str]:
    """Return a small environment whose compiler cache is ``cache``."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    defaults = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    return kept | defaults | {"PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false"} | extra


def fresh_host(folder: Path) -> dict[str, str]:
    """Return the environment of a host with empty caches, an empty home and no compiler."""
    tools = folder / "bin"
    tools.mkdir(parents=True)
    for name in ("sh", "env", "uname"):
        (tools / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    (folder / "home").mkdir()
    result = environment(folder / "cache", PATH=str(tools), HOME=str(folder / "home"))
    found = [name for name in COMPILERS if shutil.which(name, path=result["PATH"])]
    assert not found, f"this fresh host has compilers: {found}"
    return result


def train(
    arguments: Sequence[str],
    environment: dict[str, str],
    folder: Path,
    *,
    ranks: int,
    timeout: int = TIMEOUT,
    gradients: bool = False,
) -> Result:
    """Train on ``ranks`` ranks under torchrun; what they record goes to ``folder``."""
    result = _start(
        # At the front: what stands behind a subcommand (activation-checkpoint:full) belongs to it.
        ["--dump_folder", str(folder / "dump"), *arguments],
        environment | {"RECORD": str(folder)},
        ranks=ranks,
        timeout=timeout,
        gradients=gradients,
    )
    return Result(result.code, result.output, _records(folder))


def train_cases(
    cases: Mapping[str, Sequence[str]],
    environment: dict[str, str],
    folder: Path,
    *,
    ranks: int,
    timeout: int = TIMEOUT,
    gradients: bool = False,
) -> dict[str, Result]:
    """Train several jobs one after the other in the same ``ranks`` processes, by name.

    What each records goes to the folder of its name below ``folder``.

    Raises:
        AssertionError: if a job fails, with the end of the output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "cases.json"
    listed.write_text(json.dumps({name: list(words) for name, words in cases.items()}))
    result = _start(
        [],
        environment | {"RECORD": str(folder), "RECORD_CASES": str(listed)},
        ranks=ranks,
        timeout=timeout,
        gradients=gradients,
    )
    assert result.code == 0, result.output[-6000:]
    return {name: Result(result.code, result.output, _records(folder / name)) for name in cases}


def train_cases_on(
    jobs: Mapping[int, Mapping[str, Sequence[str]]],
    environment: dict[str, str],
    folder: Path,
    *,
    timeout: int = TIMEOUT,
) -> dict[str, Result]:
    """Train jobs by number of ranks, one launch for each number, and keep their gradients."""
    runs: dict[str, Result] = {}
    for ranks, cases in jobs.items():
        runs |= train_cases(
            cases, environment, folder, ranks=ranks, timeout=timeout, gradients=True
        )
    return runs


def _start(
    arguments: Sequence[str],
    environment: dict[str, str],
    *,
    ranks: int,
    timeout: int,
    gradients: bool,
) -> Result:
    command = torchrun("-m", "tests.e2e.record", *arguments, ranks=ranks)
    extra = {"RECORD_GRADIENTS": "1"} if gradients else {}
    return run(command, environment | extra, timeout=timeout)


def torchrun(*program: str, ranks: int) -> list[str]:
    """Return the command that runs ``program`` on ``ranks`` ranks of this host."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)),
        *("--master-port", str(free_port()), *program),
    ]


def _records(folder: Path) -> dict[int, dict[str, Any]]:
    return {
        int(path.stem.split("_")[1]): json.loads(path.read_text())
        for path in folder.glob("rank_*.json")
    }


def build(
    arguments: Sequence[str], environment: dict[str, str], *, timeout: int = TIMEOUT
) -> Result:
    """Run ``pp-precompile build``."""
    program = "import sys; from pp_precompile.cli import main; sys.exit(main(sys.argv[1:]))"
    return run([sys.executable, "-c", program, "build", *arguments], environment, timeout=timeout)


def free_port() -> int:
    """Return a port of loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the relative name and content of every file below ``folder``, sorted."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        yield path.relative_to(folder).as_posix(), path.read_bytes()
