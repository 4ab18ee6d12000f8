"""Write the CSV files of schedules/, and the table of them in its README, from torch's own classes.

``python -m tools.make_schedules`` writes the same bytes with the torch that it was checked with
(2.14.1); tests hold that. What is private in torch and used here: a schedule's ``pipeline_order``
and ``pipeline_order_with_comms``, ``_Action``, ``_PipelineScheduleRuntime`` and what lowers a table
in it.
"""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import nn
from torch.distributed.pipelining import schedules as torch_schedules

from pp_precompile.contract.schedule import Action, ScheduleTable, parse_actions
from pp_precompile.contract.schedule_file import read_schedule_file
from pp_precompile.graph.bubble import bubble_fraction
from tools.zb_h1 import zb_h1

FOLDER = Path(__file__).resolve().parent.parent / "schedules"

Rows = list[list[str]]
"""The cells of each rank; an empty one is a bubble."""


class Kind(NamedTuple):
    """One kind of schedule: the name that a job gives beside its file, and stages a rank."""

    named: str
    stages: int


KINDS = {
    "gpipe": Kind("GPipe", 1),
    "1f1b": Kind("1F1B", 1),
    "zb_h1": Kind("1F1B", 1),
    "loopedbfs": Kind("LoopedBFS", 2),
    "interleaved1f1b": Kind("Interleaved1F1B", 2),
    "interleaved_zero_bubble": Kind("InterleavedZeroBubble", 2),
    "zbv_zero_bubble": Kind("ZBVZeroBubble", 2),
    "dualpipev": Kind("DualPipeV", 2),
}

SIZES = {(2, 8): tuple(KINDS), (4, 8): tuple(KINDS)} | {
    (4, 16): ("1f1b", "zb_h1", "interleaved1f1b", "interleaved_zero_bubble", "zbv_zero_bubble")
}
"""Kinds by (ranks, microbatches)."""

WITH_COMMUNICATION = ("1f1b", "zb_h1", "interleaved1f1b", "zbv_zero_bubble", "dualpipev")
"""Kinds of which there is a file with communication written out, for 4 ranks and 8 microbatches."""


def files() -> Iterator[tuple[str, str, bytes]]:
    """Yield each file's name, its kind, and its bytes."""
    for (ranks, microbatches), kinds in SIZES.items():
        for kind in kinds:
            name = f"{kind}_{ranks}x{microbatches}"
            rows = computations(kind, ranks, microbatches)
            yield f"{name}.csv", kind, _csv(rows)
            if (ranks, microbatches) == (4, 8) and kind in WITH_COMMUNICATION:
                lowered = with_communication(rows, KINDS[kind].stages, microbatches)
                yield f"{name}_comms.csv", kind, _csv(lowered)


def computations(kind: str, ranks: int, microbatches: int) -> Rows:
    """Return the computations of a schedule, with the bubbles that torch's table has."""
    if kind == "zb_h1":
        return zb_h1(ranks, microbatches)
    named, stages = KINDS[kind]
    schedule_class = torch_schedules.get_schedule_class(named)
    stand_in = _stand_in(ranks, stages)
    is_multi = issubclass(schedule_class, torch_schedules.PipelineScheduleMulti)
    schedule = schedule_class(
        [stand_in] * stages if is_multi else stand_in, microbatches, loss_fn=_no_loss
    )
    rows = [_texts(schedule.pipeline_order[rank]) for rank in range(ranks)]
    return rows if is_multi else [_as_run(row) for row in rows]


def with_communication(rows: Rows, stages: int, microbatches: int) -> Rows:
    """Return ``rows`` as torch lowers them: with sends, receives, and actions for FSDP."""
    runtime = torch_schedules._PipelineScheduleRuntime(
        [_stand_in(len(rows), stages)] * stages, microbatches, loss_fn=_no_loss
    )
    order = {
        rank: [torch_schedules._Action.from_str(cell) for cell in row]
        for rank, row in enumerate(rows)
    }
    runtime._prepare_schedule_with_comms(order)
    return [_texts(runtime.pipeline_order_with_comms[rank]) for rank in range(len(rows))]


def _stand_in(ranks: int, stages: int) -> Any:
    """Return what a schedule asks of a stage before it runs: numbers alone, no process group."""
    return SimpleNamespace(
        num_stages=ranks * stages, group_size=ranks, group_rank=0, submod=nn.Identity()
    )


def _no_loss(*_: Any) -> None:
    """Stand for a loss: some schedules want one, none calls it before it runs."""


def _texts(actions: list[Any]) -> list[str]:
    """Return a row's cells; without the waits of torch 2.15, which are no part of the format."""
    return [
        "" if action is None else str(action)
        for action in actions
        if action is None or not action.computation_type.name.startswith("WAIT_")
    ]


def _as_run(row: list[str]) -> list[str]:
    """Return the row of a schedule with one stage a rank as torch's own loop runs it.

    The table that torch 2.14.1 has for 1F1B counts the last rank's forwards from 1, so that it
    leaves microbatch 0 out and ends with one that does not exist. It also names the reduction of
    gradients, which does not belong into a file of computations.
    """
    forwards = itertools.count()
    actions = [Action.parse(text) for text in row if text]
    return [
        str(Action(action.stage, "F", next(forwards)) if action.kind == "F" else action)
        for action in actions
        if action.kind != "REDUCE_GRAD"
    ]


def _csv(rows: Rows) -> bytes:
    # No cell needs a quote: torch writes no commas.
    return "".join(",".join(row) + "\n" for row in rows).encode()


def table_of(data: bytes, kind: str) -> ScheduleTable:
    """Return a file's schedule as a job would have it that names the kind's schedule beside it."""
    file = read_schedule_file(data, what=kind)
    return ScheduleTable(
        name=KINDS[kind].named,
        csv=file.digest,
        microbatches=file.microbatches,
        microbatch_size=1,
        stages_of_rank=file.stages_of_rank,
        actions=file.actions,
    )


START, END = "<!-- written by tools.make_schedules -->\n", "<!-- end of what was written -->\n"


def with_table(readme: str, made: list[tuple[str, str, bytes]]) -> str:
    """Return the README with its table of files made anew."""
    before, rest = readme.split(START)
    after = rest.split(END)[1]
    lines = [
        "| file | named schedule | ranks | stages | microbatches | backward | bubble |\n",
        "|---|---|---:|---:|---:|---|---:|\n",
        *(_line(name, table_of(data, kind)) for name, kind, data in made),
    ]
    return f"{before}{START}\n{''.join(lines)}\n{END}{after}"


def _line(name: str, table: ScheduleTable) -> str:
    cells = (
        f"[{name}]({name})",
        table.name,
        len(table.stages_of_rank),
        table.stages,
        table.microbatches,
        _backward(table),
        f"{float(bubble_fraction(table)):.1%}",
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def _backward(table: ScheduleTable) -> str:
    cells = [parse_actions(text) for texts in table.actions for text in texts]
    kinds = {action.kind for cell in cells for action in cell}
    whole, split = "B" in kinds, "I" in kinds
    text = "whole and in parts" if whole and split else "in parts" if split else "whole"
    return text + (", overlapped" if any(len(cell) > 1 for cell in cells) else "")


def write(folder: Path) -> None:
    """Write every file into ``folder``, and the table of them into its README."""
    made = list(files())
    for name, _, data in made:
        (folder / name).write_bytes(data)
    readme = folder / "README.md"
    text = with_table(readme.read_text(encoding="utf-8"), made)
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
