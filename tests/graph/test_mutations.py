"""Random changes of manifests: refused, or proven harmless; never another exception."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import CorruptError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.check import check_build
from pp_precompile.graph.finding import errors
from tests.graph.builds import INTERLEAVED, PP4, Plain, load, plain, rekeyed
from tests.graph.fakes import with_fake_blobs
from tests.manifests import make_sound
from tests.schedules import table
from tests.strategies import mutations

DATA: dict[str, bytes] = {}
HOST = PP4.environment
SPLIT = make_sound(table("dualpipev_2x8.csv"), gather=True, environment=HOST)
"""Not a real build, but one with programs of every role that a build with a loss program has."""

CORE = rekeyed(msgspec.structs.replace(load("core_llama3_pp2"), environment=HOST))
"""A build whose stages run by blocks."""

REAL = tuple(with_fake_blobs(manifest, DATA) for manifest in (PP4, INTERLEAVED, SPLIT, CORE))


def refused(manifest: Manifest) -> bool:
    def read(ref: Any) -> bytes:
        # A made-up digest is that of no blob: the store would say so.
        return DATA.get(ref.digest, b"")

    return bool(errors(check_build(manifest, host=HOST, read_blob=read)))


def relied_on(manifest: Manifest) -> bytes:
    """What loading and running a build rely on, encoded.

    Left out is what is only for people or for builders, and what the live module is compared with
    at the start of every rank.
    """
    value = plain(manifest)
    # Compared with the host: a warning, and a newer C library fits.
    del value["environment"]["device"]["name"], value["environment"]["libc"]
    blocks = [block for stage in value["stages"] for block in stage["blocks"] or ()]
    for block in blocks:
        # Compared with the stage, whose own are compared with the neighbours and the live module.
        _strip_unit(block)
    for stage in value["stages"]:
        _strip_unit(stage)
    return encode(value)


def _strip_unit(unit: Plain) -> None:
    # Compared with the live module, layouts included (PPC103).
    for item in (*unit["parameters"], *unit["buffers"]):
        item["tensor"] = None
    for tensor in unit["outputs"]:
        del tensor["requires_grad"]
    for item in unit["keywords"]:
        del item["tensor"]["requires_grad"]
    for program in unit["programs"].values():
        _strip(program)


def _strip(program: Plain) -> None:
    # For builders: a build's programs are found by the digests of their blobs.
    del program["key"]
    for value in (*program["inputs"], *program["outputs"]):
        # For people: what a saved value costs.
        del value["alias"]
        if value["tensor"]:
            # Nothing reads them: torch's own tensors bring their own.
            del value["tensor"]["requires_grad"], value["tensor"]["layout"]
        if value["kind"] == "parameter_gradient":
            # Copied where they are not the parameter's.
            del value["tensor"]["stride"]


@settings(max_examples=200)
@given(mutations(st.sampled_from([manifest.to_bytes() for manifest in REAL])))
def test_changed_bytes_are_refused_or_harmless(data: bytes) -> None:
    try:
        manifest = Manifest.from_bytes(data)
    except CorruptError:
        return
    assert refused(manifest) or relied_on(manifest) in map(relied_on, REAL)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list) and item:
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key)


CHANGED = (REAL[0], REAL[2], REAL[3])

PATHS = [
    [
        path
        for path in leaves(plain(manifest))
        # Factors are covered by the build id: contract tests that. Here it would be all there is.
        if path[0] not in ("factors", "build_id")
    ]
    for manifest in CHANGED
]

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 300),
    st.sampled_from(["", "0", "1F0", "1B9", "float32", "bfloat16", "saved", "layers.1", "tp"]),
    st.just(digest_bytes(b"another")),
)


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@pytest.mark.parametrize("index", range(len(CHANGED)))
@settings(max_examples=200)
@given(data=st.data(), new=VALUES, rekey=st.booleans())
def test_a_changed_field_is_refused_or_harmless(
    index: int, data: st.DataObject, new: Any, rekey: bool
) -> None:
    original = CHANGED[index]
    path = data.draw(st.sampled_from(PATHS[index]))
    value = plain(original)
    at(value, path[:-1])[path[-1]] = new
    try:
        manifest = Manifest.from_bytes(encode(value))
    except CorruptError:
        return
    if rekey and path[0] == "stages":
        # As a builder with a fault would have written it: the key says the same as the content.
        manifest = rekeyed(manifest)
        assert refused(manifest) or _consistent_elsewhere(path, manifest, original)
        return
    assert refused(manifest) or relied_on(manifest) == relied_on(original)


def _consistent_elsewhere(path: tuple[Any, ...], manifest: Manifest, original: Manifest) -> bool:
    """A rekeyed build may really be another one: labels of another type come from outside."""
    labels = path[2:5] == ("programs", "loss", "inputs") and "tensor" in path
    return labels or relied_on(manifest) == relied_on(original)


def test_real_builds_are_not_refused() -> None:
    assert [refused(manifest) for manifest in REAL] == [False] * 4
