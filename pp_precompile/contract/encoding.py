"""Canonical msgpack: one value, one byte string; and strict reading of untrusted bytes.

The rules are those of docs/format.md: maps have text keys in sorted order, no floats, no
extension types, no unknown or missing keys. Reading re-encodes and compares, which catches every
other way to write the same value (duplicate keys, long integer forms, other key orders).
"""

from typing import Any, TypeVar

import msgpack
import msgspec

from pp_precompile.contract.errors import CorruptError

T = TypeVar("T")

MAX_BYTES = 256 * 1024 * 1024
"""Most bytes that a structure may have; more is refused unread."""


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


def encode(value: Any) -> bytes:
    """Return the canonical msgpack of a struct or of plain builtins.

    Raises:
        TypeError: if the value holds a type that the format does not allow.
    """
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    return bytes(msgpack.packb(canonical(plain), use_bin_type=True))


def decode(data: bytes, cls: type[T], *, what: str, code: str = "PPC205") -> T:
    """Read canonical msgpack as ``cls``.

    Args:
        data: bytes whose origin is not trusted.
        cls: a msgspec struct, or a builtin container type with typed items.
        what: names the bytes in an error, for example ``"manifest 3fa2…"``.
        code: the error code for bytes that break the format.

    Raises:
        CorruptError: for anything but the canonical encoding of a valid ``cls``.
    """

    name = getattr(cls, "__name__", str(cls))
    plain = decode_untyped(data, what=what, code=code)
    try:
        value = msgspec.convert(plain, cls, strict=True)
    except (ValueError, TypeError, RecursionError) as error:
        raise _broken(what, code, name, f"{type(error).__name__}: {error}") from error
    if encode(value) != data:
        raise _broken(what, code, name, "another way to write the same value")
    return value


def decode_untyped(data: bytes, *, what: str, code: str = "PPC205") -> Any:
    """Read msgpack under the size cap as plain builtins, without checking what they mean.

    Raises:
        CorruptError: if the bytes are not msgpack of allowed types, or are too many.
    """
    if len(data) > MAX_BYTES:
        found = f"{len(data)} bytes, the most allowed is {MAX_BYTES}"
        raise _broken(what, code, "a structure", found)
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise _broken(what, code, "a structure", f"{type(error).__name__}: {error}") from error


def _broken(what: str, code: str, name: str, reason: object) -> CorruptError:
    return CorruptError(
        code,
        f"{what} is not in the stored format",
        expected=f"canonical msgpack of {name}",
        found=reason,
        hint="delete it and build again",
    )
