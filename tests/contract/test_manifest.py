"""The manifest: what is written comes back, and bytes from anywhere are refused by code."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.errors import CorruptError, PrecompileError
from pp_precompile.contract.manifest import Manifest
from tests.manifests import make_manifest
from tests.strategies import manifests, mutations

GOOD = make_manifest(2, dims={"dp": 2})


@settings(max_examples=40)
@given(manifests())
def test_manifests_come_back_as_they_were(manifest: Manifest) -> None:
    data = manifest.to_bytes()
    assert Manifest.from_bytes(data) == manifest
    assert Manifest.from_bytes(data).to_bytes() == data
    assert manifest.manifest_id == digest_bytes(data)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_by_code(data: bytes) -> None:
    with pytest.raises(CorruptError):
        Manifest.from_bytes(data)


@settings(max_examples=500)
@given(mutations(st.just(GOOD.to_bytes())))
def test_mutated_bytes_are_refused_or_another_whole_manifest(data: bytes) -> None:
    try:
        manifest = Manifest.from_bytes(data)
    except PrecompileError:
        return
    # Names and numbers that nothing else refers to may change; the form may not.
    assert manifest.to_bytes() == data


def test_blobs_lists_each_blob_once() -> None:
    stage = GOOD.stages[0]
    shared = msgspec.structs.replace(
        stage, index=1, programs={**stage.programs, "backward": stage.programs["forward"]}
    )
    manifest = msgspec.structs.replace(GOOD, stages=(stage, shared))
    forward, backward = stage.programs["forward"].blob, stage.programs["backward"].blob
    assert manifest.blobs() == {forward.digest: forward, backward.digest: backward}


def test_stages_of_a_rank_follow_the_schedule() -> None:
    manifest = make_manifest(4, ranks=2, dims={"dp": 3})
    held = [[stage.index for stage in manifest.stages_of(rank)] for rank in range(6)]
    assert held == [[0, 2]] * 3 + [[1, 3]] * 3
    with pytest.raises(ValueError, match="rank 6 is not on a mesh of 6 ranks"):
        manifest.stages_of(6)


def test_the_id_of_a_manifest_covers_what_the_build_id_does_not() -> None:
    stage = msgspec.structs.replace(GOOD.stages[0], modules=("renamed",))
    other = msgspec.structs.replace(GOOD, stages=(stage, *GOOD.stages[1:]))
    assert other.build_id == GOOD.build_id
    assert other.manifest_id != GOOD.manifest_id
