"""Inputs for the fuzz of the manifest reader: each is made from a seed alone, so any comes back.

Three kinds: random bytes, encodings of good manifests with damaged bytes, and good manifests of
which some nodes were replaced, then encoded canonically and with a build id that is right. The
last kind is what a hostile writer would make: it reaches the checks behind the form.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import msgspec
from msgspec.structs import replace

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import Manifest, Variant
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.tensor import Layout, NamedTensor
from tests.graph.builds import NAMES, load, rekeyed
from tests.manifests import make_schedule, make_sound

Plain = Any


@functools.cache
def small() -> tuple[bytes, ...]:
    """Encodings of small manifests with nothing wrong; one has variants, one a single stage."""
    plain = make_sound(make_schedule(2, 2, 3))
    several = _distributed(make_sound(make_schedule(4, 2, 4), dims={"dp_shard": 2, "tp": 2}))
    variants = rekeyed(
        replace(
            several,
            variants=(
                Variant(columns=(1, 3), stages=several.stages),
                Variant(columns=(2,), stages=several.stages),
            ),
        )
    )
    written = make_sound(_written())
    alone = make_sound(make_schedule(1, 1, 2))
    return tuple(m.to_bytes() for m in (plain, several, variants, written, alone))


def _distributed(manifest: Manifest) -> Manifest:
    """Lay the parameters out on dimensions that are made of those of the mesh."""
    layout = Layout(mesh=("efsdp", "ep"), placements=("shard(0)", "shard(0)"), shape=(16, 4))

    def spread(item: NamedTensor) -> NamedTensor:
        return replace(item, tensor=replace(item.tensor, layout=layout))

    stages = tuple(
        replace(stage, parameters=tuple(map(spread, stage.parameters))) for stage in manifest.stages
    )
    mesh = replace(manifest.mesh, experts=2)
    return rekeyed(replace(manifest, mesh=mesh, stages=stages))


def _written() -> ScheduleTable:
    """A schedule that writes its communication, has overlapped actions and parts of backwards."""
    return replace(
        make_schedule(2, 2, 2),
        csv=digest_bytes(b"a file"),
        stages_of_rank=((0,), (1,)),
        actions=(
            tuple("0UNSHARD 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0I1 0W1".split()),
            tuple("1RECV_F0 1F0 1RECV_F1 (1F1;1B0)OVERLAP_F_B 1SEND_B0 1I1 1SEND_B1 1W1".split()),
        ),
    )


@functools.cache
def large() -> tuple[bytes, ...]:
    """Encodings of the real manifests that tests have."""
    return tuple(load(name).to_bytes() for name in NAMES)


def random_bytes(random: Random) -> bytes:
    """Make bytes without a thought, some behind the first bytes of a manifest."""
    data = random.randbytes(random.choice((0, 1, 2, 5, 16, 64, 300, 2000)))
    if random.random() < 0.5:
        source = random.choice(small())
        data = source[: random.randrange(min(200, len(source)))] + data
    return data


def mutated(random: Random, sources: tuple[bytes, ...]) -> bytes:
    """Damage the encoding of a good manifest in a few places."""
    data = bytearray(random.choice(sources))
    for _ in range(random.randint(1, 3)):
        random.choice(_DAMAGES)(random, data, sources)
    return bytes(data)


def _flip(random: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    start = random.randrange(len(data) + 1)
    data[start : start + random.randint(0, 8)] = random.choice(_HEADS)


def _truncate(random: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    del data[random.randrange(len(data) + 1) :]


def _splice(random: Random, data: bytearray, sources: tuple[bytes, ...]) -> None:
    other = random.choice(sources)
    begin = random.randrange(len(other))
    start = random.randrange(len(data) + 1)
    piece = other[begin : begin + random.choice((1, 10, 100, 1000))]
    data[start : start + random.choice((0, len(piece)))] = piece


def _repeat(random: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    start = random.randrange(len(data) + 1)
    data[start:start] = data[start : start + 40] * random.choice((1, 3, 50))


_DAMAGES: tuple[Callable[[Random, bytearray, tuple[bytes, ...]], None], ...] = (
    _flip,
    _flip,
    _overwrite,
    _truncate,
    _splice,
    _repeat,
)

_HEADS = (
    *(bytes([kind]) + b"\xff" * 4 for kind in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF)),
    *(bytes([kind]) + b"\x00\x00\x00\x01" for kind in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF)),
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # not a number
    b"\xcf" + b"\xff" * 8,
    b"\xd3\x80" + b"\x00" * 7,
    b"\xcd\x00\x01",
    b"\xd9\x01a",
    b"\xd6\xff\x00\x00\x00\x00",  # a timestamp
    b"\xc7\x00\x05",
    b"\x91" * 1000,
    b"\xc0",
    b"\xc1",
    b"\xa2\xc0\x80",
    b"\xa3\xed\xa0\x80",  # a surrogate
    b"",
)
"""Encodings that a reader might trip over."""

HOSTILE: tuple[Plain, ...] = (
    *(-1, 0, 1, 2, 3, 63, 64, 65, 1000, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63),
    *(2**64 - 1, -(2**63), True, False, None, [], {}, [[]], [0], [1], [0, 1], [1, 0], [2**62] * 4),
    *([0] * 70, [2**61] * 64, list(range(20)), {"": ""}, {"forward": {}}, b"", b"\x80\x04.", ""),
    *("\0", "a\0b", "\n", "\x1b[2J", "../../../etc/passwd", "/dev/zero", "a" * 1025, "é" * 600),
    *("9" * 5000, "." * 1024, "0.0.0", "\u202e", "0F0", "1B1", "0F999999999", "0F9999999999"),
    *("(0F0;0B0)OVERLAP_F_B", "(" * 500, "0W0", "0I0", "1SEND_F0", "1RECV_F0", "0UNSHARD"),
    *("shard(0)", "shard(999)", "strided_shard(0, 2)", "partial(sum)", "replicate", "pp", "ep"),
    *("efsdp", "fsdp", "batch", "dp_shard", "tp", "float32", "int64", "bool", "0", "1", "-1"),
    *("parameter", "saved", "unsharded", "coordinate", "glibc-" + "1" * 5000, "glibc-2.36.99"),
    *("layers.999999999", "layers.0", "tuple of 999999999", "DualPipeV", "GPipe", "f" * 64),
)
"""Values to put in the place of any other."""


def structured(random: Random, sources: tuple[bytes, ...]) -> bytes:
    """Replace some nodes of a good manifest, and make its form and its id right again."""
    value = msgpack.unpackb(random.choice(sources))
    for _ in range(random.choice((1, 1, 2, 3))):
        _change(random, value)
    if random.random() < 0.9 and _is_text_map(value.get("factors")):
        value["build_id"] = build_id(value["factors"])
    data = encode(value)
    return _rekeyed(data) if random.random() < 0.6 else data


def _is_text_map(value: Plain) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _rekeyed(data: bytes) -> bytes:
    """Let factors and id say what the content says, if it can be told at all."""
    try:
        manifest = msgspec.msgpack.decode(data, type=Manifest)
        return rekeyed(manifest).to_bytes()
    except (ValueError, TypeError, IndexError, RecursionError, OverflowError):
        return data


def _change(random: Random, root: Plain) -> None:
    holder, key = _place(random, root)
    old = holder[key]
    how = random.randrange(8)
    if how == 0 and (isinstance(holder, list) or random.random() < 0.2):
        del holder[key]
    elif how == 1 and isinstance(holder, list):
        holder.insert(key, holder[random.randrange(len(holder))])
    elif how == 2:
        holder[key] = _like(random, old, [_at(*_place(random, root)) for _ in range(20)])
    elif how == 3 and isinstance(old, int):
        holder[key] = max(-(2**63), min(old + random.choice((-1, 1, 2**31)), 2**64 - 1))
    elif how == 4 and isinstance(holder, list):
        random.shuffle(holder)
    elif how == 5 and isinstance(old, list) and 0 < len(old) < 200:
        holder[key] = old * random.choice((2, 3, 70))
    elif how == 6:
        holder[key] = random.choice(HOSTILE)
    else:
        holder[key] = _like(random, old, HOSTILE)


def _like(random: Random, old: Plain, values: Sequence[Plain]) -> Plain:
    """Choose a value of the same type, which comes further than one of another."""
    chosen = random.choice([value for value in values if type(value) is type(old)] or values)
    return msgpack.unpackb(msgpack.packb(chosen))


def _at(holder: Plain, key: Plain) -> Plain:
    return holder[key]


def _place(random: Random, root: Plain) -> tuple[Any, Any]:
    """Return a container inside ``root`` and the key of one of its items."""
    holder, key = root, random.choice(list(root))
    while isinstance(holder[key], dict | list) and holder[key] and random.random() < 0.85:
        holder = holder[key]
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = random.choice(keys)
    return holder, key


KINDS: dict[str, Callable[[Random], bytes]] = {
    "random bytes": random_bytes,
    "small, damaged bytes": lambda random: mutated(random, small()),
    "real, damaged bytes": lambda random: mutated(random, large()),
    "small, replaced parts": lambda random: structured(random, small()),
    "real, replaced parts": lambda random: structured(random, large()),
}


def make(seed: int, index: int) -> tuple[str, bytes]:
    """Return input ``index`` of the run ``seed``, with its kind."""
    random = Random(f"{seed}:{index}")
    kind = random.choice(list(KINDS))
    return kind, KINDS[kind](random)


CORPUS = Path(__file__).parent / "corpus"
"""Inputs that once broke something, or that no other input is like; each is replayed by a test."""
