"""A feature's own fields as a column: the reading half of `merlin`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from distrain.errors import SchemaError
from distrain.schema.column import ColumnSchema
from distrain.schema.messages import (
    DTYPE_OF_TYPE,
    PRESENCE,
    SHARED_DOMAINS,
    UNKNOWN,
    Feature,
    fits,
)
from distrain.schema.tags import Tags

_TYPE_NAMES = {"1": "BYTES", "2": "INT", "3": "FLOAT"}
_KNOWN_TYPES = ("0", "TYPE_UNKNOWN", *_TYPE_NAMES, *_TYPE_NAMES.values())


def natural_column(
    feature: Feature, properties: Feature, shared: Mapping[str, tuple[str, Feature]]
) -> ColumnSchema:
    """The column that a feature's fields and its `annotated` properties (taken over) describe."""
    name = feature.get("name", "")
    if not name:
        raise SchemaError("a feature without a name")
    tags = list(feature.get("annotation", {}).get("tag", ()))
    kind, domain = _domain(feature, shared)
    if domain.get("is_categorical") and Tags.CATEGORICAL not in tags:
        tags.append(Tags.CATEGORICAL)
    sizes = _embedding_sizes(properties)
    cardinality = sizes.get("cardinality")
    if Tags.CATEGORICAL in tags and kind == "int_domain" and domain.get("max", 0) > 0:
        cardinality = max(domain["max"] + 1, cardinality or 0)
    _keep_domain(properties, name, kind, domain, cardinality)
    if "presence" in feature:
        properties["presence"] = {k: v for k, v in feature["presence"].items() if k in PRESENCE}
    dtype = _dtype(feature, properties)
    value_count, is_list, is_ragged = _lengths(feature, properties)
    unknown = dict(_unknown_fields(feature))
    if unknown:
        previous = properties.get(UNKNOWN)
        properties[UNKNOWN] = {**previous, **unknown} if isinstance(previous, dict) else unknown
    return ColumnSchema(
        name,
        dtype,
        tuple(tags),
        cardinality=cardinality,
        embedding_dim=sizes.get("dimension"),
        is_list=is_list,
        is_ragged=is_ragged,
        value_count=value_count,
        properties=properties,
    )


def annotated(annotation: Feature) -> Feature:
    """The properties of a feature: packed, or (an old way) as JSON in a comment."""
    properties: Feature = {}
    comments = []
    for comment in annotation.get("comment", ()):
        try:
            document = json.loads(comment)
        except ValueError:
            document = None
        if isinstance(document, dict):
            properties |= document
        else:
            comments.append(comment)
    if comments:
        properties["comment"] = comments
    for packed in annotation.get("extra_metadata", ()):
        properties |= packed
    return {key: _tidy(value) for key, value in properties.items()}


def _tidy(value: Any) -> Any:
    """Whole numbers as integers: a Struct knows doubles only."""
    if isinstance(value, dict):
        return {key: _tidy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


def _domain(
    feature: Feature, shared: Mapping[str, tuple[str, Feature]]
) -> tuple[str | None, Feature]:
    for kind in SHARED_DOMAINS:
        if kind in feature:
            return kind, feature[kind]
    name = feature.get("domain")
    return shared.get(name, (None, {"name": name})) if name else (None, {})


def _keep_domain(
    properties: Feature, name: str, kind: str | None, domain: Feature, cardinality: int | None
) -> None:
    if domain.get("name", "") not in ("", name):
        properties["domain"] = domain["name"]
    if kind == "string_domain":
        properties["string_domain"] = domain.get("value", [])
    implied = {}
    if kind == "int_domain" and cardinality is not None:
        implied = {"min": 0, "max": cardinality - 1}
    for bound in ("min", "max"):
        if bound in domain and domain[bound] != implied.get(bound):
            properties[bound] = domain[bound]


def _embedding_sizes(properties: Feature) -> dict[str, int]:
    """Take cardinality and dimension out of the properties; what else is there stays."""
    sizes = properties.get("embedding_sizes")
    if not isinstance(sizes, dict):
        return {}
    taken = {
        key: sizes.pop(key)
        for key in ("cardinality", "dimension")
        if fits(sizes.get(key), "int") and sizes[key] > 0
    }
    if not sizes:
        del properties["embedding_sizes"]
    return taken


def _dtype(feature: Feature, properties: Feature) -> str | None:
    kind = feature.get("type", "")
    kind = _TYPE_NAMES.get(kind, kind)
    if kind == "BYTES":
        properties.pop("dtype_item_size", None)
        return "string"
    if kind in ("INT", "FLOAT"):
        size = properties.pop("dtype_item_size", None)
        return (
            DTYPE_OF_TYPE.get((kind, size if isinstance(size, int) else 64))
            or DTYPE_OF_TYPE[kind, 64]
        )
    return None


def _lengths(
    feature: Feature, properties: Feature
) -> tuple[tuple[int | None, int | None] | None, bool, bool]:
    """Value count, is_list and is_ragged; the annotation, where it speaks, is taken at its word."""
    count = feature.get("value_count")
    length = _fixed_length(feature)
    if count is None and length is not None:
        count = {"min": length, "max": length}
    least, greatest = (count.get("min"), count.get("max") or None) if count else (None, None)
    listed = bool(least or greatest)
    is_list = properties.pop("is_list", listed)
    is_ragged = properties.pop("is_ragged", listed and least != greatest)
    return (least, greatest) if count is not None else None, bool(is_list), bool(is_ragged)


def _fixed_length(feature: Feature) -> int | None:
    """The length that a shape of one dimension gives to lists; length 1 is a scalar."""
    dims = feature.get("shape", {}).get("dim", ())
    size: int = dims[0].get("size", 0) if len(dims) == 1 else 0
    return size if size > 1 else None


def _unknown_fields(message: Feature, path: str = "") -> Iterator[tuple[str, Any]]:
    """What no field of a column tells, by dotted path."""
    if message.get("type", "INT") not in _KNOWN_TYPES:
        yield "type", message["type"]
    if "shape" in message and _fixed_length(message) is None:
        yield "shape", message["shape"]
    for key, value in message.items():
        if key == UNKNOWN:
            yield from ((path + name, item) for name, item in value.items())
        elif isinstance(value, dict):
            yield from _unknown_fields(value, f"{path}{key}.")
