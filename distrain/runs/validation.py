"""Validates the JSON files of a run folder when they are read: users may have edited them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, create_model

from distrain.jobs.job_view import Checkpoints, Record, record_from_json
from distrain.runs.summary import Summary
from distrain.storage.outputs import atomic_file, read_file


class _Restart(BaseModel):
    attempt: int | None = None
    reason: str | None = None
    message: str | None = None
    step: int | None = None
    after_s: float | None = None


_FIELDS: dict[str, Any] = {name: (kind, None) for name, kind in get_type_hints(Summary).items()}
_FIELDS |= {"restarts": (tuple[_Restart, ...], ()), "checkpoints": (Checkpoints, Checkpoints())}
_Outcome = create_model("_Outcome", **_FIELDS)
"""Validates `summary.json`; all fields may be missing."""

_RECORD = TypeAdapter(Record)


def json_of(text: str) -> Any:
    """Parse JSON; raise `ValueError` if it is invalid, or cannot be encoded as UTF-8 again."""
    try:
        document = json.loads(text)
        if "\\u" in text:  # perhaps half of a surrogate pair
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return document


def write_json(path: str | Path, document: Mapping[str, Any]) -> None:
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(document, indent=2) + "\n")


def read_outcome(path: Path) -> Mapping[str, Any] | None:
    """Read a run's summary; `None` if it is missing or unreadable."""
    try:
        return parsed_outcome(read_file(path).decode())
    except (OSError, ValueError):
        return None


def parsed_outcome(text: str) -> Mapping[str, Any] | None:
    """Parse the text of a `summary.json`; `None` if it is not a valid summary."""
    try:
        document: Mapping[str, Any] = json_of(text)
        _Outcome.model_validate_json(text, strict=True)
    except ValueError:
        return None
    return document


def record_of(line: bytes, document: Mapping[str, Any]) -> Record:
    """Return the record in `line`, whose JSON values are `document`.

    Raises `ValueError` if it is not one.
    """
    _RECORD.validate_json(line, strict=True)  # it would return integers as floats
    return record_from_json(document)
