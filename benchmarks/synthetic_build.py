"""Builds of any size, made from the stages of a real one: consistent throughout, but never built.

The first, a middle and the last stage of the llama3 debug model are repeated under the names of
further layers, and get a 1F1B schedule and a mesh of the size asked for.
"""

import re
from pathlib import Path

import msgspec

from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.identity import content_factors

REAL = Path(__file__).parent.parent / "tests" / "graph" / "data" / "llama3_pp4_1f1b.msgpack"
"""A real build of four stages: one layer, two, two, one."""

_LAYER = re.compile(r"layers\.(\d+)")


def synthetic_build(stages: int, microbatches: int, ranks: int) -> Manifest:
    """Return a build of ``stages`` stages, one on each pipeline rank, on ``ranks`` ranks in all.

    Raises:
        ValueError: if there are fewer than three stages, or the ranks are no multiple of them.
    """
    if stages < 3 or ranks % stages != 0:
        raise ValueError(
            f"{stages} stages on {ranks} ranks: at least 3, and a multiple, are needed"
        )
    real = Manifest.from_bytes(REAL.read_bytes())
    first, middle, last = real.stages[0], real.stages[1], real.stages[-1]
    records = [first]
    records += [_moved(middle, index, 2 * index - 2) for index in range(1, stages - 1)]
    records.append(_moved(last, stages - 1, 2 * (stages - 2) - 4))
    manifest = msgspec.structs.replace(
        real,
        mesh=msgspec.structs.replace(real.mesh, sizes=(stages, ranks // stages, 1, 1, 1)),
        schedule=_one_forward_one_backward(stages, microbatches),
        stages=tuple(records),
    )
    layers = 2 * (stages - 2) + 2
    factors = {
        **{k: v for k, v in real.factors.items() if not k.startswith(("split[", "inputs."))},
        **content_factors(manifest),
        "model.layers": f"list of {layers}",
        "training.local_batch_size": str(microbatches),
    }
    return msgspec.structs.replace(manifest, factors=factors, build_id=build_id(factors))


def _moved(stage: StageRecord, index: int, by: int) -> StageRecord:
    """Return ``stage`` at another index, with the numbers of its layers raised."""
    text = msgspec.json.encode(msgspec.structs.replace(stage, index=index)).decode()
    text = _LAYER.sub(lambda match: f"layers.{int(match[1]) + by}", text)
    return msgspec.json.decode(text, type=StageRecord)


def _one_forward_one_backward(stages: int, microbatches: int) -> ScheduleTable:
    return ScheduleTable(
        name="1F1B",
        csv=None,
        microbatches=microbatches,
        microbatch_size=1,
        stages_of_rank=tuple((stage,) for stage in range(stages)),
        actions=tuple(_order(stage, stages, microbatches) for stage in range(stages)),
    )


def _order(stage: int, stages: int, microbatches: int) -> tuple[str, ...]:
    ahead = min(stages - 1 - stage, microbatches)
    order = [f"{stage}F{mb}" for mb in range(ahead)]
    for backward in range(microbatches):
        if ahead + backward < microbatches:
            order.append(f"{stage}F{ahead + backward}")
        order.append(f"{stage}B{backward}")
    return (*order, f"{stage}REDUCE_GRAD")
