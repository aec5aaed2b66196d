"""The messages of `tensorflow_metadata.proto.v0.schema` that concern us, as plain dictionaries.

Both of Merlin's encodings (`text_form`, `json_form`) are read into one form and written from it:
snake_case keys, Python values, lists for repeated fields, and a dictionary of properties for each
packed `google.protobuf.Struct`. A table says of what kind each field is:

    "string", "int", "float", "bool", "enum"    a scalar
    "struct"                                    a packed Struct
    {field: kind}                               a message
    [kind]                                      a repeated field
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Feature: TypeAlias = dict[str, Any]
Kind: TypeAlias = "str | list[Kind] | dict[str, Kind]"

STRING_DOMAIN: dict[str, Kind] = {"name": "string", "value": ["string"]}
INT_DOMAIN: dict[str, Kind] = {
    "name": "string",
    "min": "int",
    "max": "int",
    "is_categorical": "bool",
}
FLOAT_DOMAIN: dict[str, Kind] = {"name": "string", "min": "float", "max": "float"}
PRESENCE: dict[str, Kind] = {"min_fraction": "float", "min_count": "int"}
FEATURE: dict[str, Kind] = {
    "name": "string",
    "value_count": {"min": "int", "max": "int"},
    "shape": {"dim": [{"size": "int", "name": "string"}]},
    "type": "enum",
    "domain": "string",
    "int_domain": INT_DOMAIN,
    "float_domain": FLOAT_DOMAIN,
    "string_domain": STRING_DOMAIN,
    "presence": PRESENCE,
    "annotation": {"tag": ["string"], "comment": ["string"], "extra_metadata": ["struct"]},
}
SHARED_DOMAINS: dict[str, dict[str, Kind]] = {
    "int_domain": INT_DOMAIN,
    "float_domain": FLOAT_DOMAIN,
    "string_domain": STRING_DOMAIN,
}

DTYPE_OF_TYPE = {
    ("INT", 8): "int8",
    ("INT", 16): "int16",
    ("INT", 32): "int32",
    ("INT", 64): "int64",
    ("FLOAT", 16): "float16",
    ("FLOAT", 32): "float32",
    ("FLOAT", 64): "float64",
}
"""A feature's type and `dtype_item_size` (bits), and the dtype they stand for."""

STRUCT_TYPE = "type.googleapis.com/google.protobuf.Struct"
"""What a packed Struct is called."""

UNKNOWN = "unknown_fields"
"""Where a message that was read keeps what its table does not name."""

_INT64_MAX = 2**63 - 1


def fits(value: Any, kind: Kind) -> bool:
    """Whether a plain value can be written as a field of that kind.

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
"""From a number's or word's spelling to its value; a `ValueError` says what was expected."""
