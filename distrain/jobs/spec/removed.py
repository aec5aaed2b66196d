"""What job specs could say once: refused in new ones, translated in those of runs that exist."""

from collections.abc import Iterator, Mapping
from typing import Any

GONE = "two_level"
"""A placement that was slower than `row_wise` from 32 ranks on."""

# Field, the value that changes nothing today, and what to write instead of others.
_FIELDS = (
    ("train", "dense_sync", "flat", "leave it out: gradients are added up in buckets, as by flat"),
    ("embeddings", "group_size", None, "leave it out: no placement has groups of ranks"),
)


def refusals(document: Mapping[str, Any]) -> list[str]:
    """A sentence for all that went and that the document asks for."""
    return [
        f"{field}: {value} is no longer there; {advice}" for field, value, advice in _of(document)
    ]


def translated(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same job without what went: tables of that placement are placed by `auto`."""
    result = dict(document)
    for section, name, _, _ in _FIELDS:
        inner = result.get(section)
        if isinstance(inner, Mapping) and name in inner:
            result[section] = {key: value for key, value in inner.items() if key != name}
    embeddings = result.get("embeddings")
    if isinstance(embeddings, Mapping) and any(_of_placements(embeddings)):
        kept = {name: value for name, value in embeddings.items() if value != GONE}
        if isinstance(tables := kept.get("tables"), Mapping):
            kept["tables"] = {name: place for name, place in tables.items() if place != GONE}
        result["embeddings"] = kept
    return result


def _of(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """What the document asks for and is gone: field, value, what to write instead."""
    for section, name, harmless, advice in _FIELDS:
        inner = document.get(section)
        if isinstance(inner, Mapping) and inner.get(name, harmless) != harmless:
            yield f"{section}.{name}", inner[name], advice
    embeddings = document.get("embeddings")
    if isinstance(embeddings, Mapping):
        for field in _of_placements(embeddings):
            yield f"embeddings.{field}", GONE, "write auto, row_wise or replicated"


def _of_placements(embeddings: Mapping[str, Any]) -> Iterator[str]:
    if embeddings.get("placement") == GONE:
        yield "placement"
    tables = embeddings.get("tables")
    if isinstance(tables, Mapping):
        yield from (f"tables.{name}" for name, place in tables.items() if place == GONE)
