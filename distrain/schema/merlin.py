"""Merlin's feature messages as columns, and back.

A feature is the plain dictionary that `messages` describes; text and JSON files share this mapping.

    feature                                    column
    name, annotation.tag                       name, tags (+ categorical, if the domain says so)
    type + dtype_item_size                     dtype; without a size, 64 bits, as Merlin reads it
    value_count, is_list, is_ragged            the same; a length of 0 as the greatest is no bound
    int_domain, embedding_sizes.cardinality    cardinality
    embedding_sizes.dimension                  embedding_dim
    a domain's name, if not the column's       properties["domain"]: columns of one domain share it
    a domain's other bounds                    properties["min"], properties["max"]
    string_domain's values                     properties["string_domain"]
    presence, other annotations                properties, under their own names
    what tables in `messages` do not name      properties["unknown_fields"], by dotted path

**Cardinality.** Files state it twice: `int_domain.max` is the greatest id allowed, and
`embedding_sizes.cardinality` is how many ids the category files hold. Some Merlin versions wrote a
`max` equal to the cardinality, and published files exist where either is far below the other (the
data were cut down or made up after the categories were fitted). The larger of `max + 1` and
`cardinality` counts here: every id that the file allows then has a row in its table, at the price
of at most one unused row where a version was off by one. A `max` that says something else than
the result stays in properties["max"].

**Nothing is lost.** Whatever a feature has no field for, or would give back differently (an
unsigned dtype, a cardinality without the categorical tag, ...), is written besides as JSON under
the property `distrain`, which wins on reading.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace

from distrain.errors import SchemaError
from distrain.schema.column import ColumnSchema
from distrain.schema.merlin_read import annotated, natural_column
from distrain.schema.merlin_write import natural_feature
from distrain.schema.messages import Feature
from distrain.schema.struct_codec import decode_struct, encode_struct

_EXACT = "distrain"


def column_of(feature: Feature, shared: Mapping[str, tuple[str, Feature]]) -> ColumnSchema:
    """The column that a feature describes.

    Args:
        feature: The message.
        shared: The file's domains that features refer to: name to (kind, message).

    Raises:
        SchemaError: It has no name, or its values contradict each other.
    """
    properties = annotated(feature.get("annotation", {}))
    exact = properties.pop(_EXACT, "{}")
    column = natural_column(feature, properties, shared)
    try:
        return replace(column, **json.loads(exact))
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"the property {_EXACT!r} cannot be read: {error}", where={"column": column.name}
        ) from None


def feature_of(column: ColumnSchema) -> Feature:
    """The feature that describes a column; `column_of` gives the equal column.

    Raises:
        SchemaError: A property or name has no form in a Merlin file.
    """
    try:
        feature, properties = natural_feature(column)
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
    # Through the bytes and back, so that text and JSON files lose exactly the same.
    return decode_struct(encode_struct(properties))
