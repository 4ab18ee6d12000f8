"""Hosts of a cluster on this machine: network namespaces joined by a switch that can be unplugged.

Each node has its own interface ``eth0``, address, host name and ``/etc/hosts``, and its own folder,
which every node sees at the same path, :attr:`Cluster.local`, as hosts see their own disks. What a
node starts has an empty home, empty caches and no compiler. Needs root and ``iproute2``; names are
unique, so that two clusters can stand side by side.
"""

import contextlib
import json
import os
import shutil
import string
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.process import MARK, kill_marked
from tests.e2e import launch

_TOOLS = ("ip", "unshare", "mount", "hostname")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_ENTER = """
set -e
hostname "$1"
mount --bind "$2" "$3"
mount --bind "$2/hosts" /etc/hosts
shift 3
exec "$@"
"""
"""Run in a node's network with a host name and mounts of its own: ``name folder local command``."""


@dataclass(frozen=True)
class Node:
    """One host: its network namespace, address and the folder that is its disk."""

    name: str
    namespace: str
    address: str
    folder: Path


@dataclass
class Agents:
    """One job's torchrun agents, one on each node, and all that they started."""

    record: Path
    nodes: Sequence[Node]
    processes: list[subprocess.Popen[bytes]]
    mark: str

    @property
    def go(self) -> Path:
        """The file whose appearance ends a rank's pause."""
        return self.record / "go"

    def output(self, node: str | None = None) -> str:
        """Return what a node's agent and ranks printed, or what all did."""
        names = [node] if node else [n.name for n in self.nodes]
        return "\n".join((self.record / f"{n}.log").read_text(errors="replace") for n in names)

    def wait(self, seconds: float) -> list[int]:
        """Return the exit codes of the agents, by node; fail with their output if one is late."""
        self.until(
            lambda: all(process.poll() is not None for process in self.processes),
            seconds,
            "an end of all agents",
        )
        return [process.returncode for process in self.processes]

    def until(self, happened: Any, seconds: float, what: str) -> float:
        """Wait until ``happened`` and return for how long; fail with the output if it is late."""
        start = time.monotonic()
        while not happened():
            waited = time.monotonic() - start
            if waited > seconds:
                left = f"no {what} after {waited:.0f} s; still there: {self._processes()}"
                ends = [f"{n.name}:\n{self.output(n.name)[-3000:]}" for n in self.nodes]
                raise AssertionError("\n".join([left, *ends]))
            time.sleep(0.05)
        return time.monotonic() - start

    def ranks(self) -> set[int]:
        """Return the ranks whose processes are there."""
        return set(self._processes())

    def _processes(self) -> dict[int, str]:
        """Return by rank what its process is and in which state."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, StopIteration):
                variables = (path / "environ").read_bytes().split(b"\0")
                if f"{MARK}={self.mark}".encode() in variables:
                    state = (path / "stat").read_text().rsplit(")", 1)[1].split()[0]
                    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    rank = next(v[5:] for v in variables if v.startswith(b"RANK="))
                    found[int(rank)] = f"{path.name} {state} {command}"
        return found

    def records(self, case: str) -> dict[int, dict[str, Any]]:
        """Return what the ranks recorded of a case, by rank."""
        paths = (self.record / case).glob("rank_*.json")
        return {int(p.stem.split("_")[1]): json.loads(p.read_text()) for p in paths}

    def kill(self) -> None:
        """End all that was started, wherever it is."""
        for process in self.processes:
            kill_marked(self.mark, process.pid)
            process.wait()


class Cluster:
    """Nodes on one switch, until :meth:`close`."""

    def __init__(self, count: int, folder: Path) -> None:
        """Make ``count`` nodes, with their folders below ``folder``."""
        self.local = folder / "local"
        self.local.mkdir()
        run = f"pp-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._hub = f"{run}-hub"
        self.nodes = [
            Node(name, f"{run}-{name}", f"10.77.0.{i + 1}", folder / "nodes" / name)
            for i, name in enumerate(f"node-{string.ascii_lowercase[i]}" for i in range(count))
        ]
        self._agents: list[Agents] = []
        try:
            self._wire()
            self._furnish()
        except BaseException:
            self.close()
            raise

    def _wire(self) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "switch", "up")
        for node in self.nodes:
            _ip("netns", "add", node.namespace)
            pair = ("eth0", "netns", node.namespace, "type", "veth", "peer", "name", node.name)
            _ip("link", "add", *pair, "netns", self._hub)
            _ip("-n", self._hub, "link", "set", node.name, "master", "switch", "up")
            _ip("-n", node.namespace, "addr", "add", f"{node.address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                _ip("-n", node.namespace, "link", "set", interface, "up")

    def _furnish(self) -> None:
        names = "".join(f"{node.address} {node.name}\n" for node in self.nodes)
        for node in self.nodes:
            launch.fresh_host(node.folder)
            (node.folder / "tmp").mkdir()
            (node.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")

    def start(
        self, cases: Path, record: Path, *, ranks: Sequence[int], **environment: str
    ) -> Agents:
        """Start a job with ``ranks`` ranks on each node, which runs what ``cases`` lists."""
        record.mkdir(parents=True)
        mark = uuid.uuid4().hex
        agents = Agents(record, self.nodes, [], mark)
        self._agents.append(agents)
        for index, node in enumerate(self.nodes):
            first = self.nodes[0].address
            command = [
                *(sys.executable, "-m", "torch.distributed.run"),
                *("--nnodes", str(len(self.nodes)), "--nproc-per-node", str(ranks[index])),
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first}:29500"),
                *("--rdzv-id", mark, "--rdzv-conf", f"is_host={int(index == 0)}"),
                # Ranks are numbered in the order of these.
                *("--local-addr", node.address, "-m", "tests.multinode.record"),
            ]
            variables = {MARK: mark, "RECORD": str(record), "RECORD_CASES": str(cases)}
            variables["RECORD_GO"] = str(agents.go)
            agents.processes.append(self._enter(node, command, variables | environment, record))
        return agents

    def _enter(
        self, node: Node, command: Sequence[str], variables: dict[str, str], record: Path
    ) -> subprocess.Popen[bytes]:
        local = {name: str(self.local / name.lower()) for name in ("HOME",)}
        environment = launch.environment(
            self.local / "cache",
            TMPDIR=str(self.local / "tmp"),
            GLOO_SOCKET_IFNAME="eth0",
            PATH=SYSTEM_PATH,
            **local,
            **variables,
        )
        enter = ("ip", "netns", "exec", node.namespace, "unshare", "--uts", "--mount")
        arguments = (node.name, str(node.folder), str(self.local))
        with (record / f"{node.name}.log").open("wb") as log:
            return subprocess.Popen(
                [
                    *(*enter, "sh", "-c", _ENTER, "enter", *arguments),
                    *("env", f"PATH={self.local / 'bin'}", *command),
                ],
                env=environment,
                cwd=launch.ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def unplug(self, node: Node) -> None:
        """Cut a node off as a pulled cable does: nobody is told."""
        _ip("-n", self._hub, "link", "set", node.name, "down")

    def sent(self, node: Node) -> int:
        """Return how many bytes a node has sent to others."""
        shown = json.loads(_ip("-n", node.namespace, "-s", "-j", "link", "show", "eth0"))
        sent: int = shown[0]["stats64"]["tx"]["bytes"]
        return sent

    def close(self) -> None:
        """End everything that runs on the nodes, and take the network down."""
        for agents in self._agents:
            agents.kill()
        for namespace in (*(node.namespace for node in self.nodes), self._hub):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", namespace)


@contextlib.contextmanager
def cluster(count: int, folder: Path) -> Iterator[Cluster]:
    """Provide a cluster, and take it down whatever happens."""
    _require()
    made = Cluster(count, folder)
    try:
        yield made
    finally:
        made.close()


def _require() -> None:
    """Fail, with what to do, where namespaces cannot be made: a test that skips shows nothing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=SYSTEM_PATH) is None]
    if missing:
        pytest.fail(f"tests of several nodes need {', '.join(missing)}: install iproute2")
    name = f"pp-{uuid.uuid4().hex[:6]}-probe"
    try:
        _ip("netns", "add", name)
        _ip("netns", "exec", name, "unshare", "--uts", "--mount", "hostname", "probe")
    except subprocess.CalledProcessError as error:
        pytest.fail(
            "tests of several nodes make network namespaces, for which they need root (user id 0, "
            f"CAP_SYS_ADMIN and CAP_NET_ADMIN; this is user {os.geteuid()}): {error.stderr.strip()}"
        )
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("netns", "del", name)


def _ip(*words: str) -> str:
    environment = {**os.environ, "PATH": SYSTEM_PATH}
    done = subprocess.run(
        ["ip", *words], check=True, capture_output=True, text=True, timeout=30, env=environment
    )
    return done.stdout
