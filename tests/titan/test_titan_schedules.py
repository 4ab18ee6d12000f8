"""torch's schedules as this project asks for them: the same on every admitted torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.testing._internal.distributed.fake_pg import FakeStore

from pp_precompile.contract.schedule import parse_actions
from pp_precompile.contract.schedule_file import read_schedule_file
from pp_precompile.runtime import private_schedules

RANKS, MICROBATCHES = 4, 8
SINGLE = ("GPipe", "1F1B")
MULTI = ("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
SCHEDULES = Path(__file__).parents[2] / "schedules"


@pytest.fixture(scope="module", autouse=True)
def fake_ranks() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


def _stages(*indices: int, of: int) -> list[PipelineStage]:
    meta = torch.empty(1, device="meta")
    return [
        PipelineStage(
            nn.Identity(), index, of, torch.device("cpu"), input_args=meta, output_args=meta
        )
        for index in indices
    ]


def _order(name: str) -> dict[int, list[str]]:
    schedule_class: Any = private_schedules.get_schedule_class(name)
    if name in SINGLE:
        stages: Any = _stages(0, of=RANKS)[0]
    else:
        last = 2 * RANKS - 1 if name in ("ZBVZeroBubble", "DualPipeV") else RANKS
        stages = _stages(0, last, of=2 * RANKS)
    order = private_schedules.compute_order(schedule_class(stages, MICROBATCHES))
    assert order is not None
    return {rank: [str(a) for a in row if a is not None] for rank, row in order.items()}


@pytest.mark.parametrize("name", [*SINGLE, *MULTI])
def test_every_action_of_a_table_can_be_written_in_a_manifest(name: str) -> None:
    order = _order(name)
    assert sorted(order) == list(range(RANKS))
    for row in order.values():
        kinds = {action.kind for text in row for action in parse_actions(text)}
        assert kinds <= {"F", "B", "I", "W", "REDUCE_GRAD"}


def test_a_rank_with_one_stage_reduces_last() -> None:
    for row in _order("GPipe").values():
        assert row[-1].endswith("REDUCE_GRAD")
        assert len([text for text in row if "REDUCE_GRAD" in text]) == 1


@pytest.mark.parametrize("name", ["zb_h1_4x8.csv", "zb_h1_4x8_comms.csv"])
def test_a_file_is_taken_with_and_without_communication(name: str) -> None:
    file = read_schedule_file((SCHEDULES / name).read_bytes(), what=name)
    schedule = private_schedules.schedule_from_actions(
        file.actions, _stages(0, of=RANKS), n_microbatches=MICROBATCHES, loss_fn=None
    )
    run = [str(action) for action in schedule.pipeline_order_with_comms[0]]
    without_waits = [text for text in run if "WAIT_" not in text]
    if file.communicates:
        assert without_waits == list(file.actions[0])
    waits = [text.replace("WAIT_", "") for text in run if "WAIT_" in text]
    if waits:  # torch 2.15: each send and each reduction is waited for once, and later
        assert sorted(waits) == sorted(t for t in run if t[1:5] == "SEND" or "0RED" in t)
        assert all(run.index(text) < run.index(f"0WAIT_{text[1:]}") for text in waits)
