"""Messages in protobuf's JSON form: objects from and to the dictionaries of `messages`."""

import re
from collections.abc import Mapping
from typing import Any

from distrain.errors import SchemaError
from distrain.schema.messages import READ_WORD, STRUCT_TYPE, UNKNOWN, Kind, fits


def read(document: Any, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """A message from protobuf's JSON mapping as a dictionary; a null is a field not given.

    Raises:
        SchemaError: A value is not of its field's kind; the error names the field.
    """
    if not isinstance(document, dict):
        raise SchemaError(f"expected a JSON object, found {document!r:.60}")
    message: dict[str, Any] = {}
    for json_key, value in document.items():
        key = snake(json_key)
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


def write(message: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The inverse of `read`: camelCase keys, 64-bit integers as strings."""
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


def _json_value(value: Any, kind: Kind) -> Any:
    if isinstance(kind, dict):
        return read(value, kind)
    if kind == "struct":
        # Merlin writes the bare properties, protobuf's own printer wraps them.
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


def _json_form(value: Any, kind: Kind) -> Any:
    if isinstance(kind, dict):
        return write(value, kind)
    if kind == "int":
        return str(value)
    if kind == "float" and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if kind == "struct" and "@type" in value:  # bare, it would look wrapped
        return {"@type": STRUCT_TYPE, "value": value}
    return value


def snake(key: str) -> str:
    """A field's name from its JSON name: `isCategorical` is `is_categorical`."""
    return re.sub(r"[A-Z]", lambda match: "_" + match.group().lower(), key)


def _camel(key: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match.group(1).upper(), key)
