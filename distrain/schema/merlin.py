"""Converts Merlin's feature messages to columns, and columns to feature messages.

A feature is a plain dictionary, as described in `messages`, whether the file is text or JSON.

    feature                                    column
    name, annotation.tag                       name, tags (+ categorical, if the domain says so)
    type + dtype_item_size                     dtype; without a size, 64 bits, as Merlin reads it
    value_count, is_list, is_ragged            the same; a maximum length of 0 means unbounded
    int_domain, embedding_sizes.cardinality    cardinality
    embedding_sizes.dimension                  embedding_dim
    a domain's name, if not the column's       properties["domain"]: columns of one domain share it
    a domain's other bounds                    properties["min"], properties["max"]
    string_domain's values                     properties["string_domain"]
    presence, other annotations                properties, under their own names
    fields outside the tables in `messages`    properties["unknown_fields"], by dotted path

**Cardinality.** Files state it twice: `int_domain.max` is the greatest id allowed, and
`embedding_sizes.cardinality` is how many ids the category files hold. Some Merlin versions wrote a
`max` equal to the cardinality. In some published files one of the two is far below the other,
because the data were sampled or generated after the categories were fitted. The larger of `max + 1`
and `cardinality` is used. So every id that the file allows has a row in its embedding table, at the
cost of one unused row if `max` was written as the cardinality. A `max` other than the result
minus 1 is kept in properties["max"].

**Nothing is lost.** Values that have no field in a feature, or that would change when they are
read back (an unsigned dtype, a cardinality without the categorical tag, ...), are also written as
JSON under the property `distrain`. On reading, this property takes precedence.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from distrain.errors import SchemaError
from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.messages import (
    DTYPE_OF_TYPE,
    PRESENCE,
    SHARED_DOMAINS,
    UNKNOWN,
    Feature,
    fits,
)
from distrain.schema.struct_codec import decode_struct, encode_struct

_EXACT = "distrain"


def column_of(feature: Feature, shared: Mapping[str, tuple[str, Feature]]) -> ColumnSchema:
    """Return the column that a feature describes; `SchemaError` if it is invalid.

    `shared` has the kind and the message of each top-level domain of the file, by name.
    """
    properties = _annotated(feature.get("annotation", {}))
    exact = properties.pop(_EXACT, "{}")
    column = _natural_column(feature, properties, shared)
    try:
        return replace(column, **json.loads(exact))
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"the property {_EXACT!r} cannot be read: {error}", where={"column": column.name}
        ) from None


def feature_of(column: ColumnSchema) -> Feature:
    """Return the feature that describes a column; `column_of` is the inverse.

    Raises:
        SchemaError: A property has no JSON form, or another value cannot be written.
    """
    try:
        feature, properties = _natural_feature(column)
        properties.pop(_EXACT, None)
        feature["annotation"]["extra_metadata"] = [_as_struct(properties)]
        read_back = column_of(feature, {})
        exact = {
            field.name: getattr(column, field.name)
            for field in fields(column)
            if getattr(column, field.name) != getattr(read_back, field.name)
        }
        if exact:
            properties[_EXACT] = json.dumps(exact, sort_keys=True)
            feature["annotation"]["extra_metadata"] = [_as_struct(properties)]
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"the column cannot be written to a file: {error}", where={"column": column.name}
        ) from None
    return feature


def _as_struct(properties: Feature) -> Feature:
    # Encoded and decoded again, so that text and JSON files lose exactly the same information.
    return decode_struct(encode_struct(properties))


_TYPE_NAMES = {"1": "BYTES", "2": "INT", "3": "FLOAT"}
_KNOWN_TYPES = ("0", "TYPE_UNKNOWN", *_TYPE_NAMES, *_TYPE_NAMES.values())


def _natural_column(
    feature: Feature, properties: Feature, shared: Mapping[str, tuple[str, Feature]]
) -> ColumnSchema:
    """Return the column that a feature's own fields and its `properties` describe.

    Removes from `properties` the entries that have a field in the column; the rest become the
    column's properties. Raises `SchemaError` if the feature has no name.
    """
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


def _annotated(annotation: Feature) -> Feature:
    """Return a feature's properties from its packed Structs and, in older files, JSON comments.

    A Struct's value replaces that of a comment. Comments that are not JSON objects become the
    property `comment`.
    """
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
    """Convert integral floats to integers, also in lists and dictionaries: a Struct has no ints."""
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
    """Return the kind and the message of a feature's domain, which is its own or a shared one.

    Without a domain, the result is `None, {}`. If a shared domain is missing in the file, the kind
    is `None`, and the message has only its name.
    """
    for kind in SHARED_DOMAINS:
        if kind in feature:
            return kind, feature[kind]
    name = feature.get("domain")
    return shared.get(name, (None, {"name": name})) if name else (None, {})


def _keep_domain(
    properties: Feature, name: str, kind: str | None, domain: Feature, cardinality: int | None
) -> None:
    """Add to `properties` the parts of a domain that no other field of the column expresses.

    These are a domain's name if it is not the column's, the values of a domain of strings, and
    bounds, unless `cardinality` implies them.
    """
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
    """Remove `cardinality` and `dimension` from `properties["embedding_sizes"]`, and return them.

    Only positive integers are removed and returned.
    """
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
    """Return value count, is_list and is_ragged.

    The properties `is_list` and `is_ragged` are removed, and take precedence over the value count.
    """
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
    """Return the size of a feature's one-dimensional shape, if above 1; otherwise `None`."""
    dims = feature.get("shape", {}).get("dim", ())
    size: int = dims[0].get("size", 0) if len(dims) == 1 else 0
    return size if size > 1 else None


def _unknown_fields(message: Feature, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of each entry of a feature that a column cannot hold."""
    if message.get("type", "INT") not in _KNOWN_TYPES:
        yield "type", message["type"]
    if "shape" in message and _fixed_length(message) is None:
        yield "shape", message["shape"]
    for key, value in message.items():
        if key == UNKNOWN:
            yield from ((path + name, item) for name, item in value.items())
        elif isinstance(value, dict):
            yield from _unknown_fields(value, f"{path}{key}.")


_TYPES = {
    "bool": ("INT", 8),
    "string": ("BYTES", None),
    **{dtype: kind for kind, dtype in DTYPE_OF_TYPE.items()},
    **{f"u{dtype}": kind for kind, dtype in DTYPE_OF_TYPE.items() if kind[0] == "INT"},
}


def _natural_feature(column: ColumnSchema) -> tuple[Feature, Feature]:
    """Return a column's feature message, and the properties that have no field of their own in it.

    The caller stores these properties in the message's annotation.
    """
    properties = dict(column.properties)
    feature: Feature = {"name": column.name, "annotation": {"tag": list(column.tags)}}
    if column.value_count is not None:
        bounds = zip(("min", "max"), column.value_count, strict=True)
        feature["value_count"] = {key: bound for key, bound in bounds if bound is not None}
    if column.dtype is not None:
        feature["type"], size = _TYPES[column.dtype]
        if size is not None:
            properties["dtype_item_size"] = size
    feature |= _domain_message(column, properties)
    if fits(properties.get("presence"), PRESENCE):
        feature["presence"] = dict(properties.pop("presence"))
    comments: Any = properties.get("comment")
    # A comment that looks like JSON would be read as properties, as in Merlin's oldest files.
    if fits(comments, ["string"]) and not any(c.lstrip().startswith("{") for c in comments):
        feature["annotation"]["comment"] = properties.pop("comment")
    properties |= {"is_list": column.is_list, "is_ragged": column.is_ragged}
    if column.embedding_dim is not None:
        sizes = {"cardinality": column.cardinality, "dimension": column.embedding_dim}
        properties["embedding_sizes"] = {
            key: size for key, size in sizes.items() if size is not None
        }
    return feature, properties


def _domain_message(column: ColumnSchema, properties: Feature) -> Feature:
    """Return a feature's field for the column's domain, such as `{"int_domain": {...}}`.

    Returns an empty dictionary if the column has no domain. Entries of `properties` that the field
    contains are removed.
    """
    own_name = properties.get("domain")
    named = isinstance(own_name, str) and own_name != ""
    name = properties.pop("domain") if named else column.name
    if fits(properties.get("string_domain"), ["string"]):
        return {"string_domain": {"name": name, "value": properties.pop("string_domain")}}
    is_float = (column.dtype or "").startswith("float")
    kind = "float_domain" if is_float else "int_domain"
    bounds = {
        bound: properties.pop(bound)
        for bound in ("min", "max")
        if fits(properties.get(bound), "float" if is_float else "int")
    }
    if not is_float and column.cardinality is not None:
        bounds.setdefault("max", column.cardinality - 1)
        categorical = {"is_categorical": Tags.CATEGORICAL in column.tags}
        return {kind: {"name": name, **bounds, **categorical}}
    if bounds or (named and column.dtype not in (None, "string")):
        return {kind: {"name": name, **bounds}}
    return {"domain": name} if named else {}
