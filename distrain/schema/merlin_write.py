"""A column as a feature's own fields: the writing half of `merlin`."""

from typing import Any

from distrain.schema.column import ColumnSchema
from distrain.schema.messages import DTYPE_OF_TYPE, PRESENCE, Feature, fits
from distrain.schema.tags import Tags

_TYPES = {
    "bool": ("INT", 8),
    "string": ("BYTES", None),
    **{dtype: kind for kind, dtype in DTYPE_OF_TYPE.items()},
    **{f"u{dtype}": kind for kind, dtype in DTYPE_OF_TYPE.items() if kind[0] == "INT"},
}


def natural_feature(column: ColumnSchema) -> tuple[Feature, Feature]:
    """The feature without its properties, and those that must be annotated."""
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
    # One that looks like JSON would be read as properties: that was Merlin's first way.
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
    """The domain's field, made of what it takes out of the properties."""
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
