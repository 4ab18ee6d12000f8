"""The cluster itself: it is taken down after a failure too, and says what it needs."""

import subprocess
from pathlib import Path

import pytest

from tests.multinode import nodes


def _namespaces() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], check=True, capture_output=True, text=True
    ).stdout


def test_nothing_is_left_after_a_failure(tmp_path: Path) -> None:
    made: list[nodes.Cluster] = []

    def fails() -> None:
        with nodes.cluster(2, tmp_path) as hosts:
            made.append(hosts)
            assert all(node.namespace in _namespaces() for node in hosts.nodes)
            hosts.unplug(hosts.nodes[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not any(node.namespace in _namespaces() for node in made[0].nodes)


def test_a_missing_program_is_a_failure_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nodes, "SYSTEM_PATH", str(tmp_path))
    with (
        pytest.raises(pytest.fail.Exception, match=r"need ip, .*install iproute2"),
        nodes.cluster(2, tmp_path),
    ):
        pass


def test_missing_rights_are_a_failure_that_names_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*words: str) -> str:
        raise subprocess.CalledProcessError(1, ["ip", *words], stderr="Operation not permitted\n")

    monkeypatch.setattr(nodes, "_ip", refused)
    with (
        pytest.raises(pytest.fail.Exception, match=r"need root .*Operation not permitted"),
        nodes.cluster(2, tmp_path),
    ):
        pass
