"""Manifests in the right form that ask for far more work than their bytes, by name.

Each fits within the limits of docs/format.md, or is refused for one of them. Before there were such
limits, each took minutes or gigabytes, or ended in another error than ours.
"""

import functools
from collections.abc import Callable
from typing import Any

import msgpack
import msgspec

from pp_precompile.contract.encoding import encode
from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import Manifest
from tests.graph.builds import rekeyed
from tests.manifests import make_schedule, make_sound

Plain = Any

_GPIPE = make_sound(make_schedule(2, 2, 3), dims={"dp_shard": 2, "tp": 2})


def _edited(edit: Callable[[Plain], object], *, rekey: bool = True) -> bytes:
    """Return a good manifest after ``edit``, with a right build id and, if need be, key factors."""
    value = msgpack.unpackb(_GPIPE.to_bytes())
    edit(value)
    value["build_id"] = build_id(value["factors"])
    data = encode(value)
    return rekeyed(msgspec.msgpack.decode(data, type=Manifest)).to_bytes() if rekey else data


def _actions(count: int, stage: int) -> list[str]:
    return [f"{stage}{kind}{mb}" for kind in "FB" for mb in range(count // 2)]


def _many_ranks(value: Plain) -> None:
    value["mesh"].update(dims=["pp", "dp_shard", "tp"], sizes=[2, 2**61, 1])


def _many_microbatches(value: Plain) -> None:
    value["schedule"]["microbatches"] = 2**63 - 1


def _experts_of_none(value: Plain) -> None:
    value["mesh"]["experts"] = 2**62
    value["stages"][0]["parameters"][0]["tensor"]["layout"] = {
        "mesh": ["efsdp"],
        "placements": ["shard(0)"],
        "shape": [8, 4],
    }


def _many_stages(value: Plain) -> None:
    """All on one rank, while the other has the actions."""
    stage = value["stages"][0]
    value["stages"] = [
        {**stage, "index": index, "modules": [f"layers.{index}"], "parameters": []}
        for index in range(1500)
    ]
    value["schedule"]["stages_of_rank"] = [list(range(1499)), [1499]]
    value["schedule"]["actions"] = [[], _actions(60_000, 1499)]
    value["schedule"]["microbatches"] = 30_000


def _many_variants(value: Plain) -> None:
    value["mesh"].update(dims=["pp", "dp_shard"], sizes=[2, 1000])
    bare = [{**stage, "programs": _only(stage, "forward")} for stage in value["stages"]]
    value["variants"] = [{"columns": [1 + i], "stages": bare} for i in range(256)]
    value["schedule"]["actions"] = [_actions(8000, 0), _actions(8000, 1)]
    value["schedule"]["microbatches"] = 4000


def _only(stage: Plain, role: str) -> Plain:
    return {role: stage["programs"][role]}


def _many_unknown_names(value: Plain) -> None:
    """Each of the values is not one of the parameters, and is reported so."""
    stage = value["stages"][0]
    tensor = stage["parameters"][0]["tensor"]
    stage["parameters"] = [{"name": f"layers.0.{i}", "tensor": tensor} for i in range(30_000)]
    inputs = stage["programs"]["forward"]["inputs"]
    inputs += [{**inputs[0], "name": f"x{i}"} for i in range(30_000)]


def _many_keywords(value: Plain) -> None:
    tensor = value["stages"][0]["outputs"][0]
    stage = {**value["stages"][0], "keywords": []}
    first = {**stage, "keywords": [{"name": f"k{i}", "tensor": tensor} for i in range(5000)]}
    value["stages"] = [first, *({**stage, "index": index} for index in range(1, 2000))]
    value["schedule"]["stages_of_rank"] = [list(range(1999)), [1999]]


def _unknown_dims_of_a_long_mesh(value: Plain) -> None:
    """Each of the findings quotes the mesh."""
    value["mesh"]["dims"] = ["pp", "d" * 1000, "e" * 1000]
    stage = value["stages"][0]
    layout = {"mesh": ["x" * 1000] * 16, "placements": ["y" * 1000] * 16, "shape": [4, 4]}
    tensor = {**stage["parameters"][0]["tensor"], "layout": layout}
    stage["parameters"] = [{"name": f"layers.0.{i}", "tensor": tensor} for i in range(300)]


def _dotted_names(value: Plain) -> None:
    """Each dot is where the name of a module may end."""
    stage = value["stages"][0]
    stage["modules"] = ["." * n for n in range(1, 1024, 2)]
    tensor = stage["parameters"][0]["tensor"]
    stage["parameters"] = [{"name": "." * 1018 + f"{i:06}", "tensor": tensor} for i in range(5000)]


def _long_version(value: Plain) -> None:
    value["environment"]["libc"] = "glibc-" + "9" * 1_000_000


def _long_layers(value: Plain) -> None:
    value["stages"][0]["modules"] += [f"layers.{10**9 - 1 - i}" for i in range(2000)]


def _warnings_before_an_error(value: Plain) -> None:
    """More parameters that nothing reads, a warning each, than findings are kept."""
    stage = value["stages"][0]
    tensor = stage["parameters"][0]["tensor"]
    stage["parameters"] += [{"name": f"layers.0.{i}", "tensor": tensor} for i in range(12_000)]
    value["stages"][1]["parameters"][0]["tensor"]["requires_grad"] = False


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "many ranks": (functools.partial(_edited, _many_ranks), "accepted fits"),
    "many microbatches": (functools.partial(_edited, _many_microbatches), "accepted PPC521"),
    "experts of none": (functools.partial(_edited, _experts_of_none), "refused PPC205"),
    "many stages": (functools.partial(_edited, _many_stages), "accepted PPC527"),
    "many variants": (functools.partial(_edited, _many_variants), "accepted PPC502"),
    "many unknown names": (functools.partial(_edited, _many_unknown_names), "accepted PPC505"),
    "many keywords": (functools.partial(_edited, _many_keywords), "accepted PPC527"),
    "long texts": (functools.partial(_edited, _unknown_dims_of_a_long_mesh), "accepted PPC505"),
    "dotted names": (functools.partial(_edited, _dotted_names), "accepted PPC512"),
    "long version": (functools.partial(_edited, _long_version), "accepted fits"),
    "long layers": (functools.partial(_edited, _long_layers), "accepted PPC512"),
    "warnings first": (functools.partial(_edited, _warnings_before_an_error), "accepted PPC507"),
}
"""How to make each, and what must become of it."""
