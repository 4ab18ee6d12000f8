"""Two hosts with two ranks each: a pipeline across them starts warm, or is refused on both.

All cases run in one launch, one after the other; the last one ends the job.
"""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pp_precompile.contract.environment import cpu_device
from tests.e2e import launch
from tests.multinode.conftest import STRICT, job
from tests.multinode.nodes import cluster

pytestmark = pytest.mark.torchrun

RANKS = range(4)
HOSTS = ["node-a", "node-a", "node-b", "node-b"]
SECONDS = 240.0
"""Most time that the launch may take; it is killed then, and all tests fail."""


@dataclass(frozen=True)
class Launch:
    """What a launch left behind, after it was over."""

    codes: list[int]
    cases: dict[str, dict[int, dict[str, Any]]]
    outputs: dict[str, str]
    sent: int
    seconds: float

    def case(self, name: str) -> dict[int, dict[str, Any]]:
        """Return what all ranks recorded of a case, failing with the output if one did not."""
        assert sorted(self.cases[name]) == list(RANKS), "\n".join(self.outputs.values())[-8000:]
        return self.cases[name]


@pytest.fixture(scope="module")
def launched(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """All cases, in one launch on two nodes."""
    folder = tmp_path_factory.mktemp("two_nodes")
    with cluster(2, folder) as hosts:
        for node in hosts.nodes:
            shutil.copytree(store, node.folder / "copy")
        shutil.copytree(store, hosts.nodes[0].folder / "lone")
        other = "other_cpu:node-b"
        cases = {
            "shared": {"arguments": job(store, *STRICT), "fault": ""},
            "copies": {"arguments": job(hosts.local / "copy", *STRICT), "fault": ""},
            "other_cpu_strict": {"arguments": job(store, *STRICT), "fault": other},
            "other_cpu_auto": {"arguments": job(hosts.local / "auto"), "fault": other},
            "lone": {"arguments": job(hosts.local / "lone", *STRICT), "fault": ""},
        }
        (folder / "cases.json").write_text(json.dumps(cases))
        start = time.monotonic()
        agents = hosts.start(folder / "cases.json", folder / "run", ranks=(2, 2))
        codes = agents.wait(SECONDS)
        return Launch(
            codes,
            {name: agents.records(name) for name in cases},
            {node.name: agents.output(node.name) for node in hosts.nodes},
            min(hosts.sent(node) for node in hosts.nodes),
            time.monotonic() - start,
        )


def test_the_pipeline_crosses_the_hosts_and_shards_do_not(launched: Launch) -> None:
    ranks = launched.case("shared")
    assert [ranks[r]["host"] for r in RANKS] == HOSTS
    assert [ranks[r]["mesh"]["pp"] for r in RANKS] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert [ranks[r]["mesh"]["fsdp"] for r in RANKS] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    # Activations and gradients of two cases of three steps went over the wire, both ways.
    assert launched.sent > 1_000_000


@pytest.mark.parametrize("case", ["shared", "copies"])
def test_warm_on_two_hosts_is_bitwise_as_on_one(
    case: str, launched: Launch, one_node: launch.Result
) -> None:
    ranks = launched.case(case)
    result = launch.Result(0, "", ranks)
    assert [ranks[r]["code"] for r in RANKS] == [0] * 4
    assert result.same_numbers(one_node)
    assert len(result.losses()) == 3
    for rank in RANKS:
        assert ranks[rank]["ours"]["compiled"] == 0
        assert ranks[rank]["ours"]["loaded"] > 0
        assert result.compiler_counts(rank) == {}
        assert not set(ranks[rank]["commands"]) & set(launch.COMPILERS)


@pytest.mark.parametrize("policy", ["strict", "auto"])
def test_hosts_with_other_cpus_are_refused_by_every_rank(policy: str, launched: Launch) -> None:
    """Nothing is compiled, for one CPU or the other, and nothing is loaded."""
    ranks = launched.case(f"other_cpu_{policy}")
    for rank in RANKS:
        assert ranks[rank]["code"] == 1
        said = ranks[rank]["said"]
        assert said.startswith("PPC403: ranks 0 and 2 are not the same job\n"), said
        expected, found = said.splitlines()[1:3]
        assert f"environment.device.capability = {cpu_device().capability}; " in expected
        assert expected.endswith("(ranks 0, 1 on node-a)")
        assert "environment.device.capability = sse2" in found
        assert found.endswith("(ranks 2, 3 on node-b)")
        assert ranks[rank]["ours"]["compiled"] == ranks[rank]["ours"]["loaded"] == 0


def test_a_store_on_one_host_only_is_refused_by_every_rank(launched: Launch) -> None:
    """Strict: all processes on both hosts end, and each says which host has no store."""
    ranks = launched.case("lone")
    for rank in RANKS:
        assert ranks[rank]["code"] == 1
        said = ranks[rank]["said"]
        assert said.startswith("PPC101: "), said
        assert said.count("PPC") == 1, "one error, and no other beside it"
        assert "2 of 4 rank(s) have no build that fits, ranks 2, 3 on node-b" in said
        assert "rank 2: there is no store at " in said
        assert "only ranks 0, 1 on node-a can use it" in said
        assert ranks[rank]["ours"]["loaded"] == 0
        assert ranks[rank]["seconds"] < 30
    assert all(code != 0 for code in launched.codes)
    for host, output in launched.outputs.items():
        assert output.count("\nPPC101: ") >= 2, f"{host}: {output[-6000:]}"
