"""Notes on a job's data from the `prep.json` beside it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from distrain.spec import DataSpec
from distrain.storage import is_remote

_MOST_UNKNOWN = 0.5
_GROWN = 0.1
_SHOWN = 5


def prep_notes(data: DataSpec) -> list[str]:
    """What may surprise in rows that `distrain prep` made; nothing of others."""
    notes: list[str] = []
    for role, patterns in (("training", data.train), ("validation", data.valid)):
        found = _prepared(patterns)
        if found is not None:
            split, document = found
            with suppress(AttributeError, KeyError, TypeError):  # of another version
                notes += _label_notes(role, split, document)
                notes += _unknown_notes(role, split, document)
    return notes


def _prepared(patterns: Sequence[str]) -> tuple[str, Any] | None:
    """`train` or `valid`, and the content of the `prep.json` beside it; `None` without one."""
    for pattern in patterns:
        path = Path(pattern)
        for folder in () if is_remote(pattern) else (path, *path.parents[:2]):
            if folder.name in ("train", "valid"):
                with suppress(OSError, ValueError):
                    return folder.name, json.loads((folder.parent / "prep.json").read_bytes())
    return None


def _label_notes(role: str, split: str, document: Mapping[str, Any]) -> Iterator[str]:
    ones, rows = document["rows_with_label_1"].get(split), document["rows"][split]
    if ones in (0, rows):
        yield f"all {rows:,} {role} rows have the label {int(ones > 0)}"


def _unknown_notes(role: str, split: str, document: Mapping[str, Any]) -> Iterator[str]:
    shares = document["unknown_share"]
    fitted = shares["train"] if split == "valid" else {}
    most = _GROWN if split == "valid" else _MOST_UNKNOWN
    columns = [
        f"{column} ({share:.0%})"
        for column, share in shares[split].items()
        if share - fitted.get(column, 0) > most
    ]
    if columns:
        named = ", ".join(columns[:_SHOWN])
        named += f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
        yield f"many values of {role} rows have no id, and tell a model nothing: {named}"
