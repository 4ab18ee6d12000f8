"""Hypothesis strategies for the contract's structs, derived from their annotations.

A field that is added to a struct is covered without a line here.
"""

import types
from functools import lru_cache
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.environment import Environment
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramBlob, ProgramEntry
from pp_precompile.contract.signature import Signatures
from tests.manifests import make_manifest

ROOTS = (Manifest, ProgramEntry, ProgramBlob, Signatures)
"""What the store keeps; every other struct is part of one of these."""

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)
DIGESTS = st.binary(max_size=4).map(digest_bytes)


def structs(roots: tuple[type, ...] = ROOTS) -> list[type]:
    """Return every struct that is reachable from ``roots``, each once."""
    found: list[type] = []

    def visit(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in found:
                found.append(kind)
                for hint in get_type_hints(kind, include_extras=True).values():
                    visit(hint)
        else:
            for part in get_args(kind):
                visit(part)

    for root in roots:
        visit(root)
    return found


@lru_cache
def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for every value that the annotation ``kind`` allows in the format."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _constrained(args[0], args[1])
    if isinstance(kind, NewType):
        return of_type(kind.__supertype__)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(arg) for arg in args])
    if origin is tuple:
        return st.lists(of_type(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(of_type(args[0]), of_type(args[1]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{name: of_type(hint) for name, hint in hints.items()})
    return _PLAIN[kind]


def _constrained(kind: Any, meta: msgspec.Meta) -> st.SearchStrategy[Any]:
    if meta.max_length is not None:
        return NAMES if kind is str else of_type(kind)
    if meta.pattern is not None:
        return DIGESTS
    assert meta.ge is not None
    assert meta.le is not None
    return st.integers(int(meta.ge), int(meta.le))


_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    bytes: st.binary(max_size=12),
    int: st.integers(-(2**63), 2**64 - 1),
    str: TEXT,
}


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Valid manifests: small pipelines on various meshes, with any factors and environment."""
    ranks = draw(st.integers(1, 3))
    return make_manifest(
        ranks * draw(st.integers(1, 2)),
        ranks=ranks,
        microbatches=draw(st.integers(1, 3)),
        dims=draw(st.dictionaries(st.sampled_from(["dp", "tp", "ep"]), st.integers(1, 4))),
        factors=draw(st.dictionaries(TEXT, TEXT, max_size=3)),
        environment=draw(of_type(Environment)),
    )


@st.composite
def mutations(draw: st.DrawFn, sources: st.SearchStrategy[bytes]) -> bytes:
    """Bytes made from those of ``sources`` by a few cuts, insertions and replacements."""
    data = bytearray(draw(sources))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 8)))
        data[start:end] = draw(st.binary(max_size=8))
    return bytes(data)
