"""Messages in protobuf's text form: `Field`s from and to the dictionaries of `messages`."""

from collections.abc import Iterable, Mapping
from typing import Any

from distrain.errors import SchemaError
from distrain.schema.messages import READ_WORD, STRUCT_TYPE, UNKNOWN, Kind
from distrain.schema.struct_codec import decode_struct, encode_struct
from distrain.schema.textproto import Field, Value


def read(fields: Iterable[Field], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """A parsed message as a dictionary.

    Raises:
        SchemaError: A value is not of its field's kind; the error names the line.
    """
    message: dict[str, Any] = {}
    for field in fields:
        kind = kinds.get(field.key)
        try:
            if kind is None:
                _collect(message.setdefault(UNKNOWN, {}), field.key, _untyped(field.value))
            elif isinstance(kind, list):
                message.setdefault(field.key, []).append(_text_value(field.value, kind[0]))
            elif field.key in message:
                raise ValueError("given twice")
            else:
                message[field.key] = _text_value(field.value, kind)
        except ValueError as error:
            raise SchemaError(f"{field.key}: {error}", where={"line": field.line}) from None
    return message


def write(message: Mapping[str, Any], kinds: Mapping[str, Kind]) -> list[Field]:
    """The inverse of `read`, in the table's order."""
    fields: list[Field] = []
    for key, kind in kinds.items():
        if key not in message:
            continue
        values, item_kind = message[key], kind
        if isinstance(kind, list):
            item_kind = kind[0]
        else:
            values = [values]
        fields += [Field(key, _text_form(value, item_kind)) for value in values]
    return fields


def _text_value(value: Value, kind: Kind) -> Any:
    if isinstance(kind, dict):
        if not isinstance(value, list):
            raise ValueError("expected a message in braces")
        return read(value, kind)
    if kind == "struct":
        return _unpacked(value)
    if isinstance(value, list):
        raise ValueError("expected one value, not a message")
    if kind == "string":
        if isinstance(value, str):
            raise ValueError(f"expected a string in quotes, found {value}")
        return value.decode()
    if isinstance(value, bytes):
        raise ValueError(f"expected a bare word or number, found a string {value!r:.60}")
    return READ_WORD[str(kind)](value)


def _text_form(value: Any, kind: Kind) -> Value:
    if isinstance(kind, dict):
        return write(value, kind)
    if kind == "struct":
        return [
            Field("type_url", STRUCT_TYPE.encode()),
            Field("value", encode_struct(value)),
        ]
    if kind == "string":
        return str(value).encode()
    if kind == "bool":
        return "true" if value else "false"
    return str(value)


def _unpacked(value: Value) -> dict[str, Any]:
    if not isinstance(value, list):
        raise ValueError("expected a message in braces")
    parts = read(value, {"type_url": "string"})
    packed = next((f.value for f in value if f.key == "value"), b"")
    if not parts.get("type_url", STRUCT_TYPE).endswith("/google.protobuf.Struct"):
        raise ValueError(f"expected a packed Struct, found {parts['type_url']}")
    if not isinstance(packed, bytes):
        raise ValueError("expected a packed Struct: its bytes as a string")
    try:
        return decode_struct(packed)
    except ValueError as error:
        raise ValueError(f"not the bytes of a Struct: {error}") from None


def _untyped(value: Value) -> Any:
    """A value without a table: its nearest JSON form."""
    if isinstance(value, list):
        message: dict[str, Any] = {}
        for field in value:
            _collect(message, field.key, _untyped(field.value))
        return message
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    for kind in ("bool", "int", "float"):
        try:
            return READ_WORD[kind](value)
        except ValueError:
            continue
    return value


def _collect(message: dict[str, Any], key: str, value: Any) -> None:
    """Put in a field that may turn out to be repeated."""
    if key not in message:
        message[key] = value
    elif isinstance(message[key], list):
        message[key].append(value)
    else:
        message[key] = [message[key], value]
