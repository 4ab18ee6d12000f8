"""Real manifests for tests, and ways to change them in one place.

``edited`` brings the key factors back in line with the content, as a builder with a fault would
have written them; otherwise every change would be found by PPC509 as well.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.schedule import Action
from pp_precompile.graph.identity import content_factors

DATA = Path(__file__).parent / "data"

NAMES = tuple(sorted(path.stem for path in DATA.glob("*.msgpack")))
"""Every real manifest that is there."""

Plain = dict[str, Any]


def load(name: str) -> Manifest:
    """Read one of the real manifests."""
    return Manifest.from_bytes((DATA / f"{name}.msgpack").read_bytes(), what=name)


PP4 = load("llama3_pp4_1f1b")
"""Four stages on four ranks, eight microbatches, 1F1B."""

INTERLEAVED = load("llama3_pp2_interleaved")
"""Four stages on two ranks, in a loop."""

DUALPIPEV = load("llama3_pp2_fsdp2_dualpipev")
"""Four stages on two ranks, in a V, with overlaps; parameters in two shards."""


def plain(manifest: Manifest) -> Plain:
    """Return ``manifest`` as dicts and lists, to be changed."""
    result: Plain = msgspec.json.decode(msgspec.json.encode(manifest))
    return result


def rekeyed(manifest: Manifest) -> Manifest:
    """Return ``manifest`` with the factors and the id that its content asks for."""
    prefixes = ("split[", "schedule.", "environment.", "inputs.")
    factors = {
        name: value
        for name, value in manifest.factors.items()
        if name != "mesh" and not name.startswith(prefixes)
    }
    factors |= content_factors(manifest)
    return msgspec.structs.replace(manifest, factors=factors, build_id=build_id(factors))


def edited(
    edit: Callable[[Plain], object], manifest: Manifest = PP4, *, rekey: bool = True
) -> Manifest:
    """Return ``manifest`` after ``edit`` changed its plain form in place."""
    value = plain(manifest)
    edit(value)
    result = msgspec.convert(value, Manifest)
    return rekeyed(result) if rekey else result


def stage(value: Plain, index: int) -> Plain:
    result: Plain = value["stages"][index]
    return result


def program(value: Plain, index: int, role: str) -> Plain:
    result: Plain = value["stages"][index]["programs"][role]
    return result


def find(value: Plain, index: int, role: str, side: str, kind: str, position: int = 0) -> Plain:
    """Return the input or output (``side``) of a kind at a position among those of its kind."""
    matches = [v for v in program(value, index, role)[side] if v["kind"] == kind]
    result: Plain = matches[position]
    return result


def actions(value: Plain, rank: int) -> list[str]:
    result: list[str] = value["schedule"]["actions"][rank]
    return result


def write_communication(value: Plain) -> None:
    """Write the sends and receives of a schedule with one stage a rank out, as torch would."""
    last = len(value["stages"]) - 1
    for rank, texts in enumerate(value["schedule"]["actions"]):
        written: list[str] = []
        for text in texts:
            action = Action.parse(text)
            index, mb = action.stage, action.microbatch
            forward, backward = action.kind == "F", action.kind == "B"
            if (forward and index > 0) or (backward and index < last):
                written.append(f"{index}RECV_{action.kind}{mb}")
            written.append(text)
            if (forward and index < last) or (backward and index > 0):
                written.append(f"{index}SEND_{action.kind}{mb}")
        value["schedule"]["actions"][rank] = written
