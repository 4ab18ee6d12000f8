"""A host is cut off while ranks agree: on both sides every rank ends soon, and says why.

Nobody is told of a cut: connections stay open and silent. The wait for the store's answers and the
signs of life that ranks give each other bound it (``Agreement``), not torch's timeouts (300 seconds
for a round, half an hour for a collective, a quarter of an hour until the kernel gives up).
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import launch
from tests.multinode.conftest import STRICT, job
from tests.multinode.nodes import cluster

pytestmark = pytest.mark.torchrun

START_SECONDS = 180.0
"""Most time until all ranks are where the cut happens."""

END_SECONDS = 75.0
"""Most time from the cut to the end of the last rank's process: 30 until silence is one, 5 for the
others to see it, 10 to leave together, and a machine with more ranks than cores."""

LAUNCHER_SECONDS = 30.0
"""Most time from then to the end of the launcher that can reach the store. One that cannot takes
minutes for it, longer than is waited for here."""


@dataclass(frozen=True)
class Cut:
    """What a launch left behind in which a host was cut off."""

    cases: dict[str, dict[int, dict[str, Any]]]
    output: str
    left: set[int]
    """Ranks whose processes were there when a host was cut off."""
    seconds: float
    """From the cut until no rank's process was there."""
    code: int
    """The exit code of the launcher on the side of the cut where the job's store is."""

    def case(self, name: str) -> dict[int, dict[str, Any]]:
        """Return what all ranks recorded of a case, failing with the output if one did not."""
        assert sorted(self.cases[name]) == list(range(4)), self.output[-8000:]
        return self.cases[name]


def _cut(
    folder: Path, cases: dict[str, dict[str, Any]], ranks: Sequence[int], point: str, unplugged: int
) -> Cut:
    """Run ``cases``; cut a node off in the last one, when all ranks have come to ``point``."""
    (folder / "cases.json").write_text(json.dumps(cases))
    place = folder / "run" / list(cases)[-1]
    with cluster(len(ranks), folder) as hosts:
        agents = hosts.start(folder / "cases.json", folder / "run", ranks=ranks)
        agents.until(
            lambda: len(list(place.glob(f"at_{point}_*"))) == 4, START_SECONDS, f"ranks at {point}"
        )
        left = agents.ranks()
        hosts.unplug(hosts.nodes[unplugged])
        agents.go.touch()
        seconds = agents.until(lambda: not agents.ranks(), END_SECONDS, "end of all ranks")
        first = agents.processes[0]
        agents.until(lambda: first.poll() is not None, LAUNCHER_SECONDS, "end of node-a's launcher")
        found = {name: agents.records(name) for name in cases}
        return Cut(found, agents.output(), left, seconds, first.returncode)


@pytest.fixture(scope="module")
def cuts(store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cut, Cut]:
    """Both launches side by side: most of their time is spent waiting."""
    on_exchange = {"arguments": job(store, *STRICT), "fault": "pause:exchange:node-b"}
    warm = {"arguments": job(store, *STRICT), "fault": ""}
    # All stay: had the others answered before the cut, the first host would go on to train.
    on_load = {"arguments": job(store, *STRICT), "fault": "pause:load:all"}
    folders = [tmp_path_factory.mktemp(name) for name in ("at_exchange", "at_load")]
    with ThreadPoolExecutor() as pool:
        first = pool.submit(_cut, folders[0], {"cut": on_exchange}, (2, 2), "exchange", 1)
        cases = {"warm": warm, "cut": on_load}
        second = pool.submit(_cut, folders[1], cases, (2, 1, 1), "load", 0)
    return first.result(), second.result()


@pytest.fixture(scope="module")
def at_exchange(cuts: tuple[Cut, Cut]) -> Cut:
    """Two hosts; the second one's ranks have not said what they found when it is cut off."""
    return cuts[0]


@pytest.fixture(scope="module")
def at_load(cuts: tuple[Cut, Cut]) -> Cut:
    """Three hosts start warm; again, and the first, which keeps the job's store, is cut off."""
    return cuts[1]


def test_three_hosts_start_warm_and_bitwise_as_one(at_load: Cut, one_node: launch.Result) -> None:
    ranks = at_load.case("warm")
    hosts = ["node-a", "node-a", "node-b", "node-c"]
    assert [ranks[r]["host"] for r in range(4)] == hosts
    result = launch.Result(0, "", ranks)
    assert result.same_numbers(one_node)
    assert len(result.losses()) == 3
    assert all(ranks[r]["ours"]["compiled"] == 0 for r in range(4))
    assert all(ranks[r]["ours"]["loaded"] > 0 for r in range(4))


def test_all_ranks_end_when_a_host_is_cut_off_during_the_exchange(at_exchange: Cut) -> None:
    ranks = at_exchange.case("cut")
    assert at_exchange.left == {0, 1, 2, 3}
    assert at_exchange.code == 1
    for rank in (2, 3):
        _cannot_reach_the_store(ranks[rank], "node-b")
    _misses_signs_of_life(ranks[0], ranks[1], "request", "ranks 2, 3 on node-b")
    assert all(ranks[r]["ours"]["loaded"] == 0 for r in range(4))


def test_all_ranks_end_when_the_stores_host_is_cut_off_during_load(at_load: Cut) -> None:
    ranks = at_load.case("cut")
    assert at_load.left == {0, 1, 2, 3}
    assert at_load.code == 1
    _cannot_reach_the_store(ranks[2], "node-b")
    _cannot_reach_the_store(ranks[3], "node-c")
    _misses_signs_of_life(ranks[0], ranks[1], "loaded", "rank 2 on node-b; rank 3 on node-c")
    assert all(ranks[r]["losses"] == [] for r in range(4))


def _cannot_reach_the_store(rank: dict[str, Any], host: str) -> None:
    said = rank["said"]
    assert said.startswith(
        f"PPC402: host {host} cannot reach the job's key-value store at 10.77.0.1:"
    ), said
    assert all(part in said for part in ("expected: ", "found: ", "next: ")), said


def _misses_signs_of_life(
    first: dict[str, Any], second: dict[str, Any], name: str, who: str
) -> None:
    said = first["said"]
    assert said.startswith(f"PPC402: not every rank answered in round '{name}'\n"), said
    assert f"none from {who}\n" in said
    assert all(part in said for part in ("expected: ", "found: ", "next: ")), said
    assert second["said"].startswith("PPC401: rank 0 failed"), second["said"]
    assert f"none from {who}\n" in second["said"]
