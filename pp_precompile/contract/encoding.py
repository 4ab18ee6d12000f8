"""Canonical msgpack: one value, one byte string; and strict reading of untrusted bytes.

The rules are those of docs/format.md: maps have text keys in sorted order, no floats, no
extension types, no unknown or missing keys. Reading is typed from the first byte on, so that depth,
time and memory stay bounded by the struct that is asked for; then it re-encodes and compares,
which catches every other way to write the same value (duplicate keys, long integer forms, other
key orders).
"""

from typing import Any, TypeVar

import msgpack
import msgspec

from pp_precompile.contract.errors import CorruptError

T = TypeVar("T")

MAX_BYTES = 256 * 1024 * 1024
"""Most bytes that anything in the store may have; more is refused unread."""

_MAX_REASON = 300


def canonical(value: Any) -> Any:
    """Return ``value`` (plain builtins) with every map's keys in sorted order.

    Raises:
        TypeError: for a float, a non-text key or any type that the format does not allow.
    """
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("map keys must be text")
        return {key: canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    raise TypeError(f"{type(value).__name__} has no place in the format")


_SORTED = msgspec.msgpack.Encoder(order="sorted")


def encode(value: Any) -> bytes:
    """Return the canonical msgpack of a struct or of plain builtins.

    Raises:
        TypeError: if the value holds a type that the format does not allow.
        ValueError: if text is not valid Unicode.
        OverflowError: if an integer needs more than 64 bits.
    """
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    return bytes(msgpack.packb(canonical(plain), use_bin_type=True))


def decode(
    data: bytes, cls: type[T], *, what: str, code: str = "PPC205", limit: int = MAX_BYTES
) -> T:
    """Read canonical msgpack as ``cls``.

    Args:
        data: bytes whose origin is not trusted.
        cls: a msgspec struct, or a builtin container type with typed items.
        what: names the bytes in an error, for example ``"manifest 3fa2…"``.
        code: the error code for bytes that break the format.
        limit: most bytes that this kind of structure may have.

    Raises:
        CorruptError: for anything but the canonical encoding of a valid ``cls``.
    """
    value = peek(data, cls, what=what, code=code, limit=limit)
    # A value that was read as its type holds nothing that the format does not allow, so the fast
    # encoder gives the bytes that ``encode`` does.
    if _SORTED.encode(value) != data:
        raise _broken(what, code, cls, "another way to write the same value")
    return value


def peek(
    data: bytes, cls: type[T], *, what: str, code: str = "PPC205", limit: int = MAX_BYTES
) -> T:
    """Read msgpack as ``cls`` like :func:`decode`, but in any encoding, canonical or not.

    Good for one question only: which version the bytes claim to have.

    Raises:
        CorruptError: if the bytes are too many or hold no valid ``cls``.
    """
    if len(data) > limit:
        raise _broken(what, code, cls, f"{len(data)} bytes, the most allowed is {limit}")
    try:
        return msgspec.msgpack.decode(data, type=cls, strict=True)
    except (ValueError, RecursionError) as error:
        raise _broken(what, code, cls, f"{type(error).__name__}: {error}") from error


def _broken(what: str, code: str, cls: type, reason: str) -> CorruptError:
    # The reason may quote the bytes, a hostile key of megabytes for example.
    return CorruptError(
        code,
        f"{what} is not in the stored format",
        expected=f"canonical msgpack of {getattr(cls, '__name__', cls)}",
        found=reason[:_MAX_REASON],
        hint="delete it and build again",
    )
