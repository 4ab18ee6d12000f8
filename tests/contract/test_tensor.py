"""Tensor descriptions: bytes and text."""

import pytest

from pp_precompile.contract.tensor import Layout, TensorSpec
from tests.manifests import ACTIVATION, make_stage

LAYOUT = Layout(mesh=("dp", "tp"), placements=("shard(0)", "replicate"), shape=(4, 3))


@pytest.mark.parametrize(
    ("shape", "dtype", "nbytes"),
    [((2, 3), "bfloat16", 12), ((), "complex128", 16), ((0, 5), "int64", 0), ((7,), "bool", 7)],
)
def test_bytes(shape: tuple[int, ...], dtype: str, nbytes: int) -> None:
    stride = tuple(1 for _ in shape)
    assert TensorSpec(shape=shape, stride=stride, dtype=dtype, device="cpu").nbytes == nbytes


def test_text() -> None:
    plain = TensorSpec(shape=(2, 3), stride=(3, 1), dtype="float32", device="cpu")
    shared = TensorSpec(shape=(2, 3), stride=(3, 1), dtype="float32", device="cpu", layout=LAYOUT)
    assert str(plain) == "float32[2, 3]"
    assert str(shared) == "float32[2, 3] (dp=shard(0), tp=replicate)"


def test_saved_bytes_count_what_stays_alive_only_for_this() -> None:
    stage = make_stage(1)
    forward = stage.programs["forward"]
    saved = next(value for value in forward.outputs if value.kind == "saved")
    assert saved.tensor is ACTIVATION
    assert stage.saved_bytes == ACTIVATION.nbytes
