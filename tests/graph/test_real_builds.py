"""Builds as they were made have nothing to be found, on the host that made them."""

import networkx as nx
import pytest

from pp_precompile.graph.check import check_build, check_request
from pp_precompile.graph.dependency import dependency_graph
from pp_precompile.graph.request import request_of
from pp_precompile.graph.timetable import timetable
from tests.graph.builds import NAMES, PP4, edited, load, rekeyed, write_communication


@pytest.mark.parametrize("name", NAMES)
def test_a_real_build_fits_itself_and_its_host(name: str) -> None:
    manifest = load(name)
    assert check_build(manifest, host=manifest.environment) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_real_build_is_what_its_own_job_asks_for(name: str) -> None:
    manifest = load(name)
    assert check_request(manifest, request_of(manifest)) == []


@pytest.mark.parametrize("name", NAMES)
def test_bringing_the_key_in_line_changes_nothing(name: str) -> None:
    assert rekeyed(load(name)) == load(name)


@pytest.mark.parametrize("name", NAMES)
def test_no_path_or_host_name_is_stored(name: str) -> None:
    data = load(name).to_bytes()
    assert [word for word in (b"/tmp", b"/home", b"/root", b"/usr") if word in data] == []


def test_communication_may_be_written_out() -> None:
    assert check_build(edited(write_communication)) == []


def test_the_graph_leads_from_the_first_forward_to_the_last_gradient() -> None:
    graph = dependency_graph(PP4, timetable(PP4.schedule))
    kinds = {
        kind: sum(node[0] == kind for node in graph) for kind in ("program", "value", "action")
    }
    assert kinds == {"program": 9, "value": 12, "action": 68}
    assert graph.has_edge(("value", 1, "outputs"), ("program", 2, "forward"))
    assert graph.has_edge(("value", 2, "gradients"), ("program", 1, "backward"))
    assert graph.has_edge(("value", 3, "loss"), ("program", 3, "backward"))
    assert graph.has_edge(("program", 3, "loss"), ("action", 3, 0))
    first_forward, last_backward = ("action", 0, 0), ("action", 0, 15)
    assert nx.has_path(graph, first_forward, ("action", 3, 0))
    assert nx.has_path(graph, ("action", 3, 15), last_backward)
    assert not nx.has_path(graph, last_backward, first_forward)
