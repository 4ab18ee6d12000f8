"""Manifests that are refused: a table of bad ones by name, each with the reason it must get."""

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import CorruptError
from pp_precompile.contract.manifest import FORMAT, MAX_MANIFEST_BYTES, Manifest
from tests.manifests import make_manifest

GOOD = make_manifest(2, dims={"dp": 2})

Plain = dict[str, Any]


def plain() -> Plain:
    result: Plain = msgpack.unpackb(GOOD.to_bytes())
    return result


def pack(items: list[tuple[bytes, bytes]]) -> bytes:
    """Write a map (of at most 15 items) from encoded keys and values, as they come."""
    assert len(items) < 16
    return bytes([0x80 | len(items)]) + b"".join(key + value for key, value in items)


def fields(**replaced: bytes) -> list[tuple[bytes, bytes]]:
    """The good manifest's fields, encoded; some with other bytes as value."""
    return [
        (encode(name), replaced.get(name, encode(value))) for name, value in sorted(plain().items())
    ]


def edited(edit: Callable[[Plain], object]) -> bytes:
    """The good manifest after ``edit``, encoded canonically."""
    value = plain()
    edit(value)
    return encode(value)


def forward(value: Plain) -> Plain:
    program: Plain = value["stages"][0]["programs"]["forward"]
    return program


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\x01"


def swap_build_id(value: Plain) -> None:
    value["build_id"] = digest_bytes(b"another")


FORM = {
    "empty": (b"", "truncated"),
    "truncated": (GOOD.to_bytes()[:-1], "truncated"),
    "cut in half": (GOOD.to_bytes()[: len(GOOD.to_bytes()) // 2], "truncated"),
    "bytes after the end": (GOOD.to_bytes() + b"\x00", "trailing"),
    "not a map": (encode([1, 2]), "Expected `object`"),
    "zeros": (bytes(1000), "Expected `object`"),
    "no version": (edited(lambda m: m.pop("format")), "missing required field `format`"),
    "version is text": (edited(lambda m: m.update(format="1")), "Expected `int`"),
    "version is a float": (pack(fields(format=msgpack.packb(1.0))), "Expected `int`"),
    "missing key": (edited(lambda m: m.pop("mesh")), "missing required field `mesh`"),
    "missing key with a default": (
        edited(lambda m: m["stages"][0]["outputs"][0].pop("requires_grad")),
        "another way",
    ),
    "unknown key": (edited(lambda m: m.update(extra=1)), "unknown field `extra`"),
    "unknown key inside": (edited(lambda m: m["mesh"].update(x=1)), "unknown field `x`"),
    "nil for a value": (edited(lambda m: m.update(mesh=None)), "Expected `object`"),
    "duplicate key": (pack([*fields(), (encode("format"), encode(FORMAT))]), "another way"),
    "duplicate key, other value": (pack([*fields()[:2], *fields()]), "another way"),
    "other key order": (pack(fields()[::-1]), "another way"),
    "long integer": (pack(fields(format=b"\xcc" + encode(FORMAT))), "another way"),
    "signed form of an integer": (pack(fields(format=b"\xd0" + encode(FORMAT))), "another way"),
    "long text": (
        pack([(b"\xd9" + bytes([len(key) - 1]) + key[1:], value) for key, value in fields()]),
        "another way",
    ),
    "text as bytes": (edited(lambda m: m["schedule"].update(name=b"GPipe")), "Expected `str`"),
    "broken unicode": (
        GOOD.to_bytes()
        .replace(encode("LoopedBFS"), b"\xa9LoopedBF\xff")
        .replace(encode("GPipe"), b"\xa5GPip\xff"),
        "Invalid UTF-8",
    ),
    "float inside": (
        GOOD.to_bytes().replace(
            encode("microbatches") + encode(4), encode("microbatches") + msgpack.packb(4.0), 2
        ),
        "float",
    ),
    "extension type": (pack(fields(mesh=msgpack.packb(msgpack.ExtType(1, b"")))), "ext"),
    "timestamp": (pack(fields(mesh=msgpack.packb(msgpack.Timestamp(1)))), "Expected `object`"),
    "integer key": (pack([(encode(1), encode(1)), *fields()]), "Expected `str`"),
    "deep nesting": (pack(fields(stages=nested(100))), "Expected `object`"),
    "too deep nesting": (pack(fields(stages=nested(100_000))), "recursion"),
    "too deep nesting at once": (nested(1_000_000), "Expected `object`"),
    "huge array length": (pack(fields(stages=b"\xdd\xff\xff\xff\xff")), "truncated"),
    "digest of upper case": (
        edited(lambda m: m.update(build_id=m["build_id"].upper())),
        "regex",
    ),
    "digest with a newline": (edited(lambda m: m.update(build_id=m["build_id"] + "\n")), "regex"),
    "path for a digest": (
        edited(lambda m: forward(m)["blob"].update(digest="../../../etc/passwd")),
        "regex",
    ),
    "negative size": (edited(lambda m: forward(m)["blob"].update(size=-1)), ">= 0"),
    "size beyond all files": (
        edited(lambda m: forward(m)["blob"].update(size=2**63)),
        "<= 268435456",
    ),
    "huge map length": (pack(fields(factors=b"\xdf\xff\xff\xff\xff")), "truncated"),
    "huge bytes length": (pack(fields(build_id=b"\xc6\xff\xff\xff\xff")), "truncated"),
    "huge text length": (pack(fields(build_id=b"\xdb\xff\xff\xff\xff")), "truncated"),
    "a surrogate": (pack(fields(build_id=b"\xa3\xed\xa0\x80")), "Invalid UTF-8"),
    "an overlong character": (pack(fields(build_id=b"\xa2\xc0\x80")), "Invalid UTF-8"),
    "an integer of 64 bits, short": (
        pack(fields(format=b"\xcf" + FORMAT.to_bytes(8, "big"))),
        "another way",
    ),
    "negative shape": (
        edited(lambda m: m["stages"][0]["outputs"][0].update(shape=[-1, 8, 4])),
        ">= 0",
    ),
    "negative stride": (
        edited(lambda m: m["stages"][0]["outputs"][0].update(stride=[-(2**63), 8, 4])),
        ">= 0",
    ),
    "no ranks along a dimension": (edited(lambda m: m["mesh"].update(sizes=[2, 0])), ">= 1"),
    "more ranks than an integer": (
        edited(lambda m: m["mesh"].update(sizes=[2, 2**63])),
        "<= 9223372036854775807",
    ),
    "NUL in a name": (edited(lambda m: forward(m)["inputs"][0].update(name="a\0b")), "regex"),
    "escape sequence in a name": (
        edited(lambda m: m["stages"][0].update(modules=["\x1b[2Jlayers.0"])),
        "regex",
    ),
    "C1 control character in a name": (
        edited(lambda m: m["schedule"].update(name="GPipe\x9b")),
        "regex",
    ),
    "long name": (
        edited(lambda m: m["stages"][0]["parameters"][0].update(name="." * 1025)),
        "length <= 1024",
    ),
    "many mesh dimensions": (
        edited(lambda m: m["mesh"].update(dims=[f"d{i}" for i in range(17)], sizes=[1] * 17)),
        "length <= 16",
    ),
    "many tensor dimensions": (
        edited(lambda m: m["stages"][0]["outputs"][0].update(shape=[1] * 65, stride=[1] * 65)),
        "length <= 64",
    ),
    "many stages": (edited(lambda m: m.update(stages=m["stages"][:1] * 4097)), "length <= 4096"),
    "many pipeline ranks": (
        edited(lambda m: m["schedule"].update(stages_of_rank=[[0]] * 4097)),
        "length <= 4096",
    ),
    "many stages on a rank": (
        edited(lambda m: m["schedule"].update(stages_of_rank=[list(range(4097)), [1]])),
        "length <= 4096",
    ),
    "many variants": (
        edited(lambda m: m.update(variants=[{"columns": [1], "stages": m["stages"]}] * 257)),
        "length <= 256",
    ),
    "many factors": (
        edited(lambda m: m.update(factors={f"f{i}": "" for i in range(2**16 + 1)})),
        "length <= 65536",
    ),
    "many actions of a rank": (
        edited(lambda m: m["schedule"].update(actions=[["0F0"] * (2**20 + 1), ["1F0"]])),
        "length <= 1048576",
    ),
    "huge size": (edited(lambda m: forward(m)["blob"].update(size=2**40)), "<= 268435456"),
    "no microbatch": (edited(lambda m: m["schedule"].update(microbatches=0)), ">= 1"),
    "unknown kind": (
        edited(lambda m: forward(m)["inputs"][0].update(kind="secret")),
        "Invalid enum value 'secret'",
    ),
}


def give_stage_to_both_ranks(value: Plain) -> None:
    value["schedule"]["stages_of_rank"] = [[0, 1], [1]]


def give_one_blob_two_sizes(value: Plain) -> None:
    programs = value["stages"][0]["programs"]
    programs["backward"]["blob"] = {**programs["forward"]["blob"], "size": 1}


REFERENCES = {
    "swapped build id": (swap_build_id, "build_id is not the digest of the factors"),
    "edited factor": (lambda m: m["factors"].update(stages="3"), "build_id is not the digest"),
    "no stages": (lambda m: m.update(stages=[]), "the build has no stage"),
    "missing stage": (lambda m: m["stages"].pop(), "ranks hold stages [0, 1], the build has 1"),
    "stages in another order": (lambda m: m["stages"].reverse(), "stage indices are not 0, 1"),
    "stage twice": (lambda m: m["stages"][1].update(index=0), "stage indices are not 0, 1"),
    "dangling stage": (
        lambda m: m["schedule"].update(stages_of_rank=[[0], [7]]),
        "ranks hold stages [0, 7], the build has 2",
    ),
    "stage on two ranks": (give_stage_to_both_ranks, "ranks hold stages [0, 1, 1]"),
    "unknown role": (
        lambda m: m["stages"][0]["programs"].update(sideways=forward(m)),
        "stage 0 has programs of unknown role ['sideways']",
    ),
    "no forward": (
        lambda m: m["stages"][1]["programs"].pop("forward"),
        "stage 1 has no forward program",
    ),
    "mesh sizes missing": (lambda m: m["mesh"].update(sizes=[2]), "2 dimensions and 1 sizes"),
    "dimension twice": (lambda m: m["mesh"].update(dims=["pp", "pp"]), "a dimension twice"),
    "more ranks than can be counted": (
        lambda m: m["mesh"].update(sizes=[2, 2**62]),
        "the mesh has more than 9223372036854775807 ranks",
    ),
    "pipeline inside": (
        lambda m: m["mesh"].update(dims=["dp", "pp"], sizes=[2, 2]),
        "pp is not the outermost dimension of the mesh",
    ),
    "ranks of experts that do not divide": (
        lambda m: m["mesh"].update(experts=3),
        "3 ranks of ep do not divide those of dp_shard, cp, tp",
    ),
    "actions of all ranks": (
        lambda m: m["schedule"].update(actions=[["0F0"] * 2**19, ["1F0"] * (2**19 + 1)]),
        "a schedule of 1048577 actions, over 1048576",
    ),
    "action of a thousand digits": (
        lambda m: m["schedule"]["actions"][0].__setitem__(0, "1" * 1000 + "F0"),
        "is not an action",
    ),
    "tensor without end": (
        lambda m: m["stages"][0]["outputs"][0].update(shape=[2**62, 2, 1], stride=[2, 1, 1]),
        "stage 0, outputs, 0: more than 9223372036854775807 bytes",
    ),
    "another number of ranks": (
        lambda m: m["mesh"].update(sizes=[3, 2]),
        "the schedule has 2 pipeline ranks, the mesh 3",
    ),
    "actions missing": (
        lambda m: m["schedule"]["actions"].pop(),
        "actions for 1 pipeline ranks, stages for 2",
    ),
    "unreadable action": (
        lambda m: m["schedule"]["actions"][1].__setitem__(2, "1X2"),
        "pipeline rank 1, action 2: '1X2' is not an action",
    ),
    "one blob with two sizes": (give_one_blob_two_sizes, "has sizes"),
    "unknown dtype": (
        lambda m: m["stages"][0]["outputs"][0].update(dtype="float7"),
        "stage 0, outputs, 0: unknown dtype 'float7'",
    ),
    "unknown dtype in a program": (
        lambda m: forward(m)["inputs"][0]["tensor"].update(dtype="float7"),
        "stage 0, forward, parameter layers.0.weight: unknown dtype 'float7'",
    ),
    "ragged tensor": (
        lambda m: m["stages"][0]["parameters"][0]["tensor"].update(stride=[1]),
        "stage 0, parameters, layers.0.weight: 2 sizes, 1 strides",
    ),
    "variant without columns": (
        lambda m: m["variants"].append({"columns": [], "stages": m["stages"]}),
        "a variant for columns [] of 2",
    ),
    "variant of a column that is not there": (
        lambda m: m["variants"].append({"columns": [1, 2], "stages": m["stages"]}),
        "a variant for columns [1, 2] of 2",
    ),
    "variant of the first column": (
        lambda m: m["variants"].append({"columns": [0], "stages": m["stages"]}),
        "columns [0] of the mesh have two variants",
    ),
    "variant with fewer stages": (
        lambda m: m["variants"].append({"columns": [1], "stages": m["stages"][:1]}),
        "a variant of 1 stages, the build has 2",
    ),
    "variant with stages out of order": (
        lambda m: m["variants"].append({"columns": [1], "stages": m["stages"][::-1]}),
        "stage indices are not 0, 1, 2",
    ),
    "dynamic dimension that is not there": (
        lambda m: m["stages"][0]["parameters"][0]["tensor"].update(dynamic=[0, 2]),
        "stage 0, parameters, layers.0.weight: dynamic dimensions [0, 2] of 2",
    ),
    "dynamic dimensions out of order": (
        lambda m: m["stages"][0]["parameters"][0]["tensor"].update(dynamic=[1, 0]),
        "stage 0, parameters, layers.0.weight: dynamic dimensions [1, 0] of 2",
    ),
    "ragged layout": (
        lambda m: m["stages"][1]["arguments"][0]["tensor"].update(
            layout={"mesh": ["dp"], "placements": [], "shape": [1]}
        ),
        "stage 1, arguments, 0: 1 mesh dimensions, 0 placements",
    ),
}


@pytest.mark.parametrize("name", FORM)
def test_bad_form_is_refused(name: str) -> None:
    data, reason = FORM[name]
    assert data != GOOD.to_bytes()
    with pytest.raises(CorruptError) as caught:
        Manifest.from_bytes(data, what="manifest X")
    assert caught.value.code == "PPC205"
    assert reason in str(caught.value.found)
    assert str(caught.value).startswith("PPC205: manifest X is not in the stored format")


@pytest.mark.parametrize("name", REFERENCES)
def test_contradiction_is_refused(name: str) -> None:
    edit, reason = REFERENCES[name]
    with pytest.raises(CorruptError) as caught:
        Manifest.from_bytes(edited(edit), what="manifest X")
    assert caught.value.code == "PPC205"
    assert reason in str(caught.value.found)
    assert str(caught.value).startswith("PPC205: manifest X contradicts itself")
    assert caught.value.hint == "delete it and build again"


@pytest.mark.parametrize("version", [0, FORMAT - 1, FORMAT + 1, -1, 2**64 - 1])
def test_another_version_is_told_from_damage(version: int) -> None:
    data = encode({"format": version, "whatever": [1, 2]})
    with pytest.raises(CorruptError) as caught:
        Manifest.from_bytes(data, what="manifest X")
    assert caught.value.code == "PPC206"
    assert (caught.value.expected, caught.value.found) == (f"format {FORMAT}", f"format {version}")
    assert "the pp_precompile version that wrote it" in str(caught.value)


def test_too_many_bytes_are_refused_unread() -> None:
    with pytest.raises(CorruptError, match="the most allowed is 67108864"):
        Manifest.from_bytes(bytes(MAX_MANIFEST_BYTES + 1))
