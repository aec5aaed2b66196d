"""Messages of `tensorflow_metadata.proto.v0.schema` as dictionaries, from and to text and JSON.

Both of Merlin's encodings are read into one form and written from it: snake_case keys, Python
values, lists for repeated fields, and a dictionary of properties for each packed
`google.protobuf.Struct`. Tables such as `FEATURE` state the kind of each field:

    "string", "int", "float", "bool", "enum"    a scalar
    "struct"                                    a packed Struct
    {field: kind}                               a message
    [kind]                                      a repeated field
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from distrain.errors import SchemaError
from distrain.schema.struct_codec import decode_struct, encode_struct
from distrain.schema.textproto import Field, Value

Feature: TypeAlias = dict[str, Any]
FieldKind: TypeAlias = "str | list[FieldKind] | dict[str, FieldKind]"

STRING_DOMAIN: dict[str, FieldKind] = {"name": "string", "value": ["string"]}
INT_DOMAIN: dict[str, FieldKind] = {
    "name": "string",
    "min": "int",
    "max": "int",
    "is_categorical": "bool",
}
FLOAT_DOMAIN: dict[str, FieldKind] = {"name": "string", "min": "float", "max": "float"}
SHARED_DOMAINS: dict[str, dict[str, FieldKind]] = {
    "int_domain": INT_DOMAIN,
    "float_domain": FLOAT_DOMAIN,
    "string_domain": STRING_DOMAIN,
}
PRESENCE: dict[str, FieldKind] = {"min_fraction": "float", "min_count": "int"}
FEATURE: dict[str, FieldKind] = {
    "name": "string",
    "value_count": {"min": "int", "max": "int"},
    "shape": {"dim": [{"size": "int", "name": "string"}]},
    "type": "enum",
    "domain": "string",
    **SHARED_DOMAINS,
    "presence": PRESENCE,
    "annotation": {"tag": ["string"], "comment": ["string"], "extra_metadata": ["struct"]},
}

DTYPE_OF_TYPE = {
    **{("INT", size): f"int{size}" for size in (8, 16, 32, 64)},
    **{("FLOAT", size): f"float{size}" for size in (16, 32, 64)},
}
"""The dtype by feature type and `dtype_item_size` (in bits)."""

STRUCT_TYPE = "type.googleapis.com/google.protobuf.Struct"
"""The type URL of a packed Struct."""

UNKNOWN = "unknown_fields"
"""The key under which a message's dictionary has the fields that its table of kinds lacks."""

_INT64_MAX = 2**63 - 1


def fits(value: Any, kind: FieldKind) -> bool:
    """Return True if a plain value can be written as a field of that kind.

    >>> fits({"min_fraction": 1.0, "min_count": 1}, PRESENCE), fits(True, "int"), fits(2**63, "int")
    (True, False, False)
    """
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(item, kind[0]) for item in value)
    if isinstance(kind, dict):
        return isinstance(value, Mapping) and all(
            key in kind and fits(item, kind[key]) for key, item in value.items()
        )
    if kind in ("int", "float") and isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, int) and -_INT64_MAX <= value <= _INT64_MAX
    if kind == "float":
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= 2**53)
    return isinstance(value, bool if kind == "bool" else str)


def _read_bool(word: str) -> bool:
    if word not in ("true", "True", "t", "false", "False", "f"):
        raise ValueError(f"expected true or false, found {word}")
    return word[0] in "tT"


def _read_int(word: str) -> int:
    try:
        return int(word) if word.lstrip("+-").isdigit() else int(word, 0)
    except ValueError:
        raise ValueError(f"expected an integer, found {word}") from None


def _read_float(word: str) -> float:
    number = word[:-1] if word[-1:] in "fF" and word[-2:-1].isdigit() else word
    try:
        return float(number)
    except ValueError:
        raise ValueError(f"expected a number, found {word}") from None


READ_WORD: dict[str, Callable[[str], Any]] = {
    "bool": _read_bool,
    "int": _read_int,
    "float": _read_float,
    "enum": str,
}
"""The parser of a number or word, by kind; raises a `ValueError` that names the expected type."""


def read_json(document: Any, kinds: Mapping[str, FieldKind]) -> dict[str, Any]:
    """Return the dictionary of a message in protobuf's JSON mapping; nulls are absent fields.

    Raises:
        SchemaError: A value does not have the kind of its field.
    """
    if not isinstance(document, dict):
        raise SchemaError(f"expected a JSON object, found {document!r:.60}")
    message: dict[str, Any] = {}
    for json_key, value in document.items():
        key = snake_case(json_key)
        kind = kinds.get(key)
        if value is None:
            continue
        try:
            if kind is None:
                message.setdefault(UNKNOWN, {})[key] = value
            elif not isinstance(kind, list):
                message[key] = _json_value(value, kind)
            elif isinstance(value, list):
                message[key] = [_json_value(item, kind[0]) for item in value]
            else:
                raise ValueError(f"expected a list, found {value!r:.60}")
        except ValueError as error:
            raise SchemaError(f"{json_key}: {error}") from None
    return message


def write_json(message: Mapping[str, Any], kinds: Mapping[str, FieldKind]) -> dict[str, Any]:
    """Return a message as protobuf's JSON mapping: camelCase keys, 64-bit integers as strings.

    The keys are in the order of `kinds`; those that `kinds` lacks are left out.
    """
    document: dict[str, Any] = {}
    for key, kind in kinds.items():
        if key not in message:
            continue
        value = message[key]
        document[_camel(key)] = (
            [_json_form(item, kind[0]) for item in value]
            if isinstance(kind, list)
            else _json_form(value, kind)
        )
    return document


def _json_value(value: Any, kind: FieldKind) -> Any:
    if isinstance(kind, dict):
        return read_json(value, kind)
    if kind == "struct":
        # Merlin writes the properties alone; protobuf's own printer writes `@type` and `value`.
        wrapped = isinstance(value, dict) and value.get("@type") == STRUCT_TYPE
        packed = value.get("value") if wrapped else value
        if not isinstance(packed, dict):
            raise ValueError(f"expected an object of properties, found {packed!r:.60}")
        return packed
    if kind in ("int", "float", "enum") and not isinstance(value, bool):
        return READ_WORD[str(kind)](str(value))
    if not fits(value, kind):
        raise ValueError(f"expected {kind}, found {value!r:.60}")
    return value


def _json_form(value: Any, kind: FieldKind) -> Any:
    if isinstance(kind, dict):
        return write_json(value, kind)
    if kind == "int":
        return str(value)
    if kind == "float" and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if kind == "struct" and "@type" in value:  # otherwise it would be read as protobuf's form
        return {"@type": STRUCT_TYPE, "value": value}
    return value


def snake_case(key: str) -> str:
    """Return a field's name from its JSON name: `is_categorical` for `isCategorical`."""
    return re.sub(r"[A-Z]", lambda match: "_" + match.group().lower(), key)


def _camel(key: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match.group(1).upper(), key)


def read_text(fields: Iterable[Field], kinds: Mapping[str, FieldKind]) -> dict[str, Any]:
    """Return the dictionary of a message in text format.

    Fields that `kinds` lacks are stored under `UNKNOWN`.

    Raises:
        SchemaError: A value does not have the kind of its field, or a field that is not repeated
            is given twice. The error has the line.
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


def write_text(message: Mapping[str, Any], kinds: Mapping[str, FieldKind]) -> list[Field]:
    """Return the message's fields in the order of `kinds`; the inverse of `read_text`.

    A list gives one field per item. Keys of the message that `kinds` lacks are left out.
    """
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


def _text_value(value: Value, kind: FieldKind) -> Any:
    if isinstance(kind, dict):
        if not isinstance(value, list):
            raise ValueError("expected a message in braces")
        return read_text(value, kind)
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


def _text_form(value: Any, kind: FieldKind) -> Value:
    if isinstance(kind, dict):
        return write_text(value, kind)
    if kind == "struct":
        type_url = Field("type_url", STRUCT_TYPE.encode())
        return [type_url, Field("value", encode_struct(value))]
    if kind == "string":
        return str(value).encode()
    if kind == "bool":
        return "true" if value else "false"
    return str(value)


def _unpacked(value: Value) -> dict[str, Any]:
    if not isinstance(value, list):
        raise ValueError("expected a message in braces")
    parts = read_text(value, {"type_url": "string"})
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
    """Return the Python value of a field of unknown kind.

    A bare word may be a boolean or a number.
    """
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
    """Add a field of unknown kind; from its second value on, the field is a list."""
    if key not in message:
        message[key] = value
    elif isinstance(message[key], list):
        message[key].append(value)
    else:
        message[key] = [message[key], value]
