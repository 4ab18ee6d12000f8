"""Builds whose stages run by blocks: each fault between a stage and its blocks is found."""

from collections.abc import Callable

import msgspec
import networkx as nx
import pytest

from pp_precompile.contract.errors import CorruptError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.check import check_build
from pp_precompile.graph.compare import of_build
from pp_precompile.graph.dependency import dependency_graph
from pp_precompile.graph.diff import program_differences
from pp_precompile.graph.held import held
from pp_precompile.graph.parts import grouped_programs, links, parts
from pp_precompile.graph.plan import plan_of
from pp_precompile.graph.timetable import timetable
from tests.graph.builds import Plain, actions, edited, load, plain, stage

CORE = load("core_llama3_pp2")
"""Two stages of the core trainer's llama3, three layers each."""

Edit = Callable[[Plain], object]


def block(value: Plain, index: int, position: int) -> Plain:
    result: Plain = stage(value, index)["blocks"][position]
    return result


def values(value: Plain, index: int, position: int, role: str, side: str) -> list[Plain]:
    result: list[Plain] = block(value, index, position)["programs"][role][side]
    return result


def of_kind(items: list[Plain], kind: str) -> Plain:
    return next(item for item in items if item["kind"] == kind)


def split_backward(value: Plain) -> None:
    texts = actions(value, 1)
    texts[texts.index("1B0")] = "1I0"
    texts.insert(texts.index("1I0") + 1, "1W0")


def swap_blocks(value: Plain) -> None:
    blocks = stage(value, 0)["blocks"]
    blocks[0], blocks[1] = blocks[1], blocks[0]


def rename_parameter(value: Plain) -> None:
    for item in block(value, 0, 1)["parameters"]:
        item["name"] = item["name"].replace("wo", "wx")
    for program in block(value, 0, 1)["programs"].values():
        for item in (*program["inputs"], *program["outputs"]):
            if item["kind"].startswith("parameter"):
                item["name"] = item["name"].replace("wo", "wx")
            if item["alias"]:
                item["alias"] = item["alias"].replace("wo", "wx")


def as_whole(value: Plain) -> None:
    """Make one stage a program of its own, as another front end would."""
    first = block(value, 1, 0)
    stage(value, 1).update(blocks=None, programs=first["programs"])


CASES: dict[str, tuple[Edit, set[str], str]] = {
    # name: (change, exactly these codes, part of a finding's text)
    "no backward": (
        lambda v: block(v, 0, 1)["programs"].pop("backward"),
        {"PPC105", "PPC502", "PPC507"},
        "stage 0 has no layers.1 backward program",
    ),
    "split backward": (split_backward, {"PPC105"}, "layers.3 backward_input program, for 1I0"),
    "a layer without programs": (
        lambda v: stage(v, 0)["blocks"].pop(1),
        {"PPC105"},
        "none: layers.1",
    ),
    "a stage without blocks": (
        as_whole,
        {"PPC105", "PPC505", "PPC506", "PPC507"},
        "stage 1 does not fit its modules",
    ),
    "a block of another stage": (
        lambda v: block(v, 0, 2).update(name="layers.3"),
        {"PPC105", "PPC515", "PPC506"},
        "layers.3",
    ),
    "order": (swap_blocks, {"PPC513"}, "layers.1, layers.0, layers.2"),
    "boundary inside": (
        lambda v: block(v, 0, 1)["arguments"][0]["tensor"].update(dtype="bfloat16"),
        {"PPC501", "PPC506"},
        "layers.1 of stage 0 does not take what layers.0 of stage 0 returns",
    ),
    "boundary between stages": (
        lambda v: block(v, 1, 0)["arguments"][0]["tensor"].update(dtype="bfloat16"),
        {"PPC501", "PPC506"},
        "layers.3 of stage 1 does not take what layers.2 of stage 0 returns",
    ),
    "the stage's own boundary": (
        lambda v: stage(v, 0)["outputs"][0].update(dtype="bfloat16"),
        {"PPC501"},
        "stage 1 does not take what stage 0 returns",
    ),
    "gradient inside": (
        lambda v: values(v, 0, 1, "backward", "outputs").remove(
            of_kind(values(v, 0, 1, "backward", "outputs"), "argument_gradient")
        ),
        {"PPC502"},
        "no gradient",
    ),
    "gradient between stages": (
        lambda v: of_kind(values(v, 0, 2, "backward", "inputs"), "tangent")["tensor"].update(
            stride=[65536, 1, 256]
        ),
        {"PPC502", "PPC506"},
        "stride [65536, 1, 256]",
    ),
    "saved value": (
        lambda v: of_kind(values(v, 0, 1, "forward", "outputs"), "saved")["tensor"].update(
            dtype="float16"
        ),
        {"PPC503"},
        "programs of layers.1 of stage 0 disagree",
    ),
    "gradient of a parameter": (
        lambda v: values(v, 1, 0, "backward", "outputs").remove(
            of_kind(values(v, 1, 0, "backward", "outputs"), "parameter_gradient")
        ),
        {"PPC507"},
        "of layers.3 of stage 1 has no right gradient",
    ),
    "a kind that a block has not": (
        lambda v: of_kind(values(v, 0, 0, "forward", "inputs"), "keyword").update(kind="deferred"),
        {"PPC505"},
        "layers.0 forward",
    ),
    "another name of a parameter": (rename_parameter, {"PPC506"}, "attention.wx.weight"),
    "another keyword": (
        lambda v: block(v, 0, 0)["keywords"].append(
            {**block(v, 0, 0)["keywords"][0], "name": "mask"}
        ),
        {"PPC508"},
        "mask",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found(name: str) -> None:
    edit, codes, text = CASES[name]
    findings = check_build(edited(edit, CORE))
    assert {finding.code for finding in findings} == codes
    assert any(text in str(finding) for finding in findings)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            lambda v: stage(v, 0).update(programs=block(v, 0, 0)["programs"]),
            "beside those of its blocks",
        ),
        (lambda v: block(v, 0, 0)["programs"].pop("forward"), "layers.0 has no forward program"),
        (lambda v: block(v, 0, 1).update(name="layers.0"), "names a block twice"),
        (
            lambda v: block(v, 0, 1)["programs"].update(
                other=v["stages"][0]["blocks"][0]["programs"]["forward"]
            ),
            "unknown role",
        ),
        (
            lambda v: block(v, 0, 1)["parameters"][0]["tensor"].update(dtype="nothing"),
            "layers.1, parameters",
        ),
        (
            lambda v: block(v, 0, 1)["programs"]["forward"]["blob"].update(size=1),
            "has sizes",
        ),
    ],
)
def test_a_manifest_that_contradicts_itself_is_not_read(edit: Edit, text: str) -> None:
    value = plain(CORE)
    edit(value)
    with pytest.raises(CorruptError, match=text) as raised:
        Manifest.from_bytes(msgspec.convert(value, Manifest).to_bytes())
    assert raised.value.code == "PPC205"


def test_a_stage_may_hold_no_layer() -> None:
    """Many stages of few layers: the first has the embedding alone, the last the head."""

    def eager(value: Plain) -> None:
        last = stage(value, 1)
        last["blocks"] = []
        last["modules"] = ["norm", "lm_head"]
        for name in ("parameters", "buffers"):
            last[name] = [i for i in last[name] if not i["name"].startswith("layers")]
        value["factors"]["model.layers"] = "list of 3"

    manifest = edited(eager, CORE)
    assert check_build(manifest) == []
    assert {name.split()[0] for name, _ in manifest.stages[0].all_programs} == {
        "layers.0",
        "layers.1",
        "layers.2",
    }


def test_programs_are_seen_by_all_that_counts_and_shows_them() -> None:
    assert len(CORE.entries()) == len(CORE.blobs()) == 2
    assert [part.title for part in parts(CORE)][:2] == [
        "layers.0 of stage 0",
        "layers.1 of stage 0",
    ]
    assert len(list(links(CORE))) == 5
    names = [name for name, _ in grouped_programs(CORE.stages[0])]
    assert sorted(names) == ["layers.0 to layers.2 backward", "layers.0 to layers.2 forward"]
    planned = plan_of(CORE)
    assert len(planned.programs) == 12
    assert len(planned.keys("compile")) == 2
    assert of_build("core", CORE).missing == ()


def test_what_a_block_keeps_counts_with_its_input() -> None:
    [first, *_] = CORE.stages[0].blocks or ()
    saved = [v for v in first.programs["forward"].outputs if v.kind == "saved"]
    own = sum(v.tensor.nbytes for v in saved if v.tensor and v.alias is None)
    passed = [v for v in saved if v.alias == "argument:0"]
    inputs = sum(v.tensor.nbytes for v in passed if v.tensor)
    assert inputs > 0
    assert CORE.stages[0].saved_bytes == 3 * (own + inputs)
    assert held(CORE.stages[0]).at_least
    assert held(CORE.stages[0]).kept is None


def test_the_graph_leads_through_the_blocks() -> None:
    graph = dependency_graph(CORE, timetable(CORE.schedule))
    assert graph.has_edge(("value", 0, "layers.0 outputs"), ("program", 0, "layers.1 forward"))
    assert graph.has_edge(("value", 0, "layers.2 outputs"), ("program", 1, "layers.3 forward"))
    assert graph.has_edge(("value", 1, "layers.3 gradients"), ("program", 0, "layers.2 backward"))
    assert graph.has_edge(("program", 1, "layers.5 backward"), ("action", 1, 1))
    first, last = ("program", 0, "layers.0 forward"), ("program", 0, "layers.0 backward")
    assert nx.has_path(graph, first, last)


def test_another_program_of_a_block_is_a_difference() -> None:
    def change(value: Plain) -> None:
        block(value, 1, 2)["programs"]["backward"]["key"] = "0" * 64

    [found] = program_differences(CORE, edited(change, CORE))
    assert (found.stage, found.program, found.traced) == (1, "layers.5 backward", True)
