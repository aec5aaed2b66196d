r"""Encodes JSON objects as the bytes of a `google.protobuf.Struct`, and decodes them.

    Struct    { map<string, Value> fields = 1; }      a map entry is { key = 1, value = 2 }
    Value     { oneof: null = 1, number = 2 (double), string = 3, bool = 4, struct = 5, list = 6 }
    ListValue { repeated Value values = 1; }

A field begins with its tag, `number << 3 | wire type`, as a varint. Wire type 0 is a varint, 1 is
eight bytes, 2 is a length and that many bytes, 5 is four bytes.

>>> encode_struct({"num_buckets": None})
b'\n\x11\n\x0bnum_buckets\x12\x02\x08\x00'
>>> decode_struct(_)
{'num_buckets': None}
"""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NULL, _NUMBER, _STRING, _BOOL, _STRUCT, _LIST = 1, 2, 3, 4, 5, 6


def encode_struct(document: Mapping[str, Any]) -> bytes:
    """Serialise a JSON object, with sorted keys. Numbers become doubles.

    An integer beyond 2**53 loses its last digits.

    Raises:
        ValueError: A value has no JSON form.
    """
    entries = []
    for key in sorted(document, key=_checked_key):
        entry = _chunk(1, key.encode()) + _chunk(2, _encode_value(document[key], key))
        entries.append(_chunk(1, entry))
    return b"".join(entries)


def decode_struct(data: bytes) -> dict[str, Any]:
    """Parse a serialised Struct; every number becomes a float.

    Raises:
        ValueError: The bytes are not a Struct.
    """
    document: dict[str, Any] = {}
    for number, entry in _fields(data):
        if number != 1 or not isinstance(entry, bytes):
            continue
        parts = dict(_fields(entry))
        key, value = parts.get(1, b""), parts.get(2, b"")
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            raise ValueError("a map entry with a key or value of another type")
        document[key.decode()] = _decode_value(value)
    return document


def _encode_value(value: Any, key: str) -> bytes:
    if value is None:
        return _tag(_NULL, _VARINT) + b"\0"
    if isinstance(value, bool):
        return _tag(_BOOL, _VARINT) + bytes([value])
    if isinstance(value, int | float):
        return _tag(_NUMBER, _FIXED64) + _double(value, key)
    if isinstance(value, str):
        return _chunk(_STRING, value.encode())
    if isinstance(value, Mapping):
        return _chunk(_STRUCT, encode_struct(value))
    if isinstance(value, list | tuple):
        items = (_chunk(1, _encode_value(item, key)) for item in value)
        return _chunk(_LIST, b"".join(items))
    raise ValueError(f"{key} is a {type(value).__name__}, which JSON cannot represent")


def _decode_value(data: bytes) -> Any:
    value: Any = None
    for number, raw in _fields(data):  # if several fields are set, the last one counts
        if number == _NULL:
            value = None
        elif number == _NUMBER and isinstance(raw, bytes) and len(raw) == 8:
            value = struct.unpack("<d", raw)[0]
        elif number == _BOOL:
            value = bool(raw)
        elif isinstance(raw, int):
            raise ValueError(f"field {number} of a value has another type")
        elif number == _STRING:
            value = raw.decode()
        elif number == _STRUCT:
            value = decode_struct(raw)
        elif number == _LIST:
            value = [_decode_value(item) for _, item in _fields(raw) if isinstance(item, bytes)]
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field: an integer for a varint, otherwise bytes."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        if wire_type == _BYTES:
            size, at = _read_varint(data, at)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire_type}")
        if at + size > len(data):
            raise ValueError(f"{at + size - len(data)} bytes are missing at the end")
        yield tag >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at index `at`, and the index after it."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number without an end")


def varint(value: int) -> bytes:
    """Return a varint: seven bits a byte, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def _chunk(number: int, payload: bytes) -> bytes:
    return _tag(number, _BYTES) + varint(len(payload)) + payload


def _double(value: float, key: str) -> bytes:
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{key} is too large for a double") from None
    if not math.isfinite(number):
        raise ValueError(f"{key} is {number}, which JSON cannot represent")
    return struct.pack("<d", number)


def _checked_key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"the key {key!r} is not a string")
    return key
