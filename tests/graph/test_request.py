"""A build against a job that asks for something else: each difference has its own code."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pp_precompile.contract.errors import CODES
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.check import check_request
from pp_precompile.graph.diff import program_differences
from pp_precompile.graph.nearest import Difference, nearest
from pp_precompile.graph.order import first_difference
from pp_precompile.graph.request import request_of
from tests.graph.builds import INTERLEAVED, PP4, Plain, actions, edited, stage


def asking(edit: Callable[[Plain], object]) -> Any:
    """The job that the edited build would be right for."""
    return request_of(edited(edit))


def exchange_actions(value: Plain) -> None:
    texts = actions(value, 2)
    texts[3], texts[4] = texts[4], texts[3]


def other_split(value: Plain) -> None:
    stage(value, 1)["modules"].append(stage(value, 2)["modules"].pop(0))


def no_keywords(value: Plain) -> None:
    for one in value["stages"]:
        one["keywords"] = []


CASES: dict[str, tuple[Callable[[Plain], object], str, Mapping[str, str]]] = {
    "split": (
        other_split,
        "PPC601",
        {
            "expected": "0: tok_embeddings layers.0 | 1: layers.1 layers.2 layers.3 | "
            "2: layers.4 | 3: layers.5 norm lm_head",
            "found": "0: tok_embeddings layers.0 | 1: layers.1 layers.2 | "
            "2: layers.3 layers.4 | 3: layers.5 norm lm_head",
        },
    ),
    "order": (
        exchange_actions,
        "PPC602",
        {"expected": "2B1 (rank 2, position 3)", "found": "2F2 (rank 2, position 3)"},
    ),
    "name": (
        lambda v: v["schedule"].update(name="GPipe"),
        "PPC602",
        {"expected": "GPipe", "found": "1F1B"},
    ),
    "placement": (
        lambda v: v["schedule"].update(stages_of_rank=[[0], [2], [1], [3]]),
        "PPC602",
        {"expected": "((0,), (2,), (1,), (3,))", "found": "((0,), (1,), (2,), (3,))"},
    ),
    "mesh": (
        lambda v: v["mesh"].update(sizes=[4, 1, 2, 1, 1]),
        "PPC603",
        {
            "expected": "pp=4 x dp_replicate=1 x dp_shard=2 x cp=1 x tp=1 = 8 ranks",
            "found": "pp=4 x dp_replicate=1 x dp_shard=1 x cp=1 x tp=1 = 4 ranks",
        },
    ),
    "microbatches": (
        lambda v: v["schedule"].update(microbatches=16),
        "PPC604",
        {
            "expected": "16 microbatches of 1 sequences",
            "found": "8 microbatches of 1 sequences",
        },
    ),
    "factor": (
        lambda v: v["factors"].update({"model.norm.eps": "1e-06"}),
        "PPC605",
        {"expected": "1e-06", "found": "1e-05"},
    ),
    "factor that is new": (
        lambda v: v["factors"].update({"model.new": "true"}),
        "PPC605",
        {"expected": "true", "found": "no such factor"},
    ),
    "host": (
        lambda v: v["environment"].update(torch="2.15.0"),
        "PPC102",
        {"expected": "2.15.0", "found": "2.14.1"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_difference_is_found(name: str) -> None:
    edit, code, texts = CASES[name]
    [finding] = check_request(PP4, asking(edit))
    assert finding.code == code
    assert {"expected": finding.expected, "found": finding.found} == texts


def test_an_input_that_was_absent_at_build_is_found_on_every_stage() -> None:
    findings = check_request(edited(no_keywords), request_of(PP4))
    absent = [f for f in findings if f.code == "PPC104"]
    assert [(f.where.stage, f.expected, f.found) for f in absent] == [
        (index, "positions", "none") for index in range(4)
    ]


def test_every_code_of_the_block_has_a_case() -> None:
    assert {c for c in CODES if c.startswith("PPC6")} == {
        code for _, code, _ in CASES.values() if code.startswith("PPC6")
    }


def test_the_first_difference_may_be_an_order_that_ended() -> None:
    shorter = edited(lambda v: actions(v, 1).pop()).schedule
    assert first_difference(PP4.schedule, shorter) == (1, 16, "1REDUCE_GRAD", None)
    assert first_difference(shorter, PP4.schedule) == (1, 16, None, "1REDUCE_GRAD")
    assert first_difference(PP4.schedule, PP4.schedule) is None


def test_the_nearest_build_is_the_one_with_the_fewest_differences() -> None:
    asked = asking(lambda v: v["factors"].update({"model.norm.eps": "1e-06"}))
    near = nearest(asked.factors, [INTERLEAVED, PP4])
    assert near is not None
    assert near.build == PP4.build_id
    assert near.differs == (Difference(factor="model.norm.eps", stored="1e-05", asked="1e-06"),)
    assert nearest(asked.factors, []) is None


def test_builds_for_other_schedules_share_their_programs() -> None:
    assert list(program_differences(PP4, INTERLEAVED)) == []


def test_programs_that_differ_are_named() -> None:
    def change(value: Plain) -> None:
        programs = stage(value, 1)["programs"]
        programs["forward"]["key"] = "0" * 64
        programs["backward"]["kernels"] += 1
        stage(value, 3)["programs"].pop("loss")

    changed: Manifest = edited(change)
    found = [(d.stage, d.program, d.traced) for d in program_differences(PP4, changed)]
    assert found == [(1, "forward", True), (1, "backward", False), (3, "loss", True)]
