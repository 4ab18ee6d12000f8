"""Sizes of shards: what torch's chunking gives to some rank fits, anything else does not."""

import pytest

from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.check import check_build
from tests.graph.builds import Plain, edited, load, stage

FSDP2 = load("llama3_pp2_fsdp2")


def sharded(local: int, whole: int, ranks: int) -> Manifest:
    """A build with one more, frozen parameter: ``local`` rows of ``whole``, cut for ``ranks``."""

    def change(value: Plain) -> None:
        value["mesh"]["sizes"][2] = ranks
        for one in value["stages"]:
            one["parameters"] = []
        tensor = {
            "shape": [local],
            "stride": [1],
            "dtype": "float32",
            "device": "cpu",
            "requires_grad": False,
            "layout": {"mesh": ["fsdp"], "placements": ["shard(0)"], "shape": [whole]},
        }
        stage(value, 0)["parameters"].append({"name": "layers.0.extra", "tensor": tensor})

    return edited(change, FSDP2)


@pytest.mark.parametrize(
    ("local", "whole", "ranks", "fits"),
    [
        (128, 256, 2, True),
        (256, 256, 2, False),
        (86, 256, 3, True),
        (84, 256, 3, True),
        (85, 256, 3, False),
        (1, 3, 8, True),
        (0, 3, 8, True),
        (0, 256, 2, False),
        (0, 0, 4, True),
        (2, 5, 4, True),
        (1, 5, 4, True),
        (0, 5, 4, True),
    ],
)
def test_shards(local: int, whole: int, ranks: int, fits: bool) -> None:
    codes = {f.code for f in check_build(sharded(local, whole, ranks))}
    assert ("PPC532" in codes) is not fits
