"""The files of schedules/ are what the tool writes, and what torch itself reads."""

import itertools
import shutil
from pathlib import Path

import pytest
import torch
from torch.distributed.pipelining import schedules as torch_schedules

from pp_precompile.contract.schedule import Action
from pp_precompile.graph.bubble import step_units
from tests.schedules import FILES, FOLDER, ROWS, read, table
from tools import make_schedules
from tools.zb_h1 import zb_h1

OTHER_TORCH = not torch.__version__.startswith("2.14.")


@pytest.mark.skipif(OTHER_TORCH, reason="the files were written with torch 2.14")
def test_the_tool_writes_the_files_byte_for_byte(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "README.md", tmp_path)
    make_schedules.write(tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    assert sorted(written) == sorted([*FILES, "README.md"])


@pytest.mark.skipif(OTHER_TORCH, reason="torch 2.15 wants waits, which no file has")
@pytest.mark.parametrize("name", FILES)
def test_torch_reads_a_file_as_we_do(name: str) -> None:
    schedule = table(name)
    ranks = len(schedule.actions)
    runtime = torch_schedules._PipelineScheduleRuntime(
        [make_schedules._stand_in(ranks, schedule.stages // ranks)],
        schedule.microbatches,
        loss_fn=lambda *_: None,
    )
    if read(name).communicates:
        runtime._load_csv(str(FOLDER / name), format="compute_comms")
        order = runtime.pipeline_order_with_comms
    else:
        runtime._load_csv(str(FOLDER / name))
        order = runtime.pipeline_order
    texts = tuple(tuple(str(action) for action in order[rank] if action) for rank in range(ranks))
    assert texts == schedule.actions
    owners = {stage: schedule.owner(stage) for stage in range(schedule.stages)}
    assert runtime.stage_index_to_group_rank == owners


@pytest.mark.skipif(OTHER_TORCH, reason="the files were written with torch 2.14")
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("_comms.csv")])
def test_written_communication_is_what_torch_would_add(name: str) -> None:
    without = read(name.replace("_comms", ""))
    lowered = make_schedules.with_communication(
        [list(texts) for texts in without.actions],
        len(without.stages_of_rank[0]),
        without.microbatches,
    )
    assert tuple(map(tuple, lowered)) == read(name).actions


def test_the_readme_links_every_file() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"[{name}]({name})" in text for name in ROWS)


SIZES = [(1, 1), (2, 2), (2, 8), (3, 4), (4, 8), (8, 32)]


def most_alive(actions: list[str]) -> int:
    """The most microbatches that are between F and W at any time."""
    changes = [{"F": 1, "I": 0, "W": -1}[Action.parse(text).kind] for text in actions]
    return max(itertools.accumulate(changes))


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_zb_h1_takes_as_long_as_the_paper_says(ranks: int, microbatches: int) -> None:
    """The bubble is (p - 1)(F + I - W), where 1F1B has (p - 1)(F + I + W)."""
    data = "".join(f"{','.join(row)}\n" for row in zb_h1(ranks, microbatches)).encode()
    schedule = make_schedules.table_of(data, "zb_h1")
    assert step_units(schedule) == 3 * microbatches + ranks - 1


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_zb_h1_keeps_no_more_microbatches_alive_than_1f1b(ranks: int, microbatches: int) -> None:
    assert max(most_alive(row) for row in zb_h1(ranks, microbatches)) == ranks


def test_zb_h1_needs_a_microbatch_for_each_rank() -> None:
    with pytest.raises(ValueError, match="3 microbatches for 4 ranks"):
        zb_h1(4, 3)
