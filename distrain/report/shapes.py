"""What the JSON files of a run directory may hold: read with nothing in them taken on trust."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from distrain.coordinator.view import Record, record_from_json


class _Restart(BaseModel):
    attempt: int | None = None
    reason: str | None = None
    message: str | None = None
    step: int | None = None
    after_s: float | None = None


class _Checkpoints(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = 0
    step: int | None = None
    path: str | None = None
    stood_still_s: float = 0.0
    write_s: float = 0.0
    failed: int = 0


class _Earlier(BaseModel):
    restarts: tuple[_Restart, ...] = ()
    checkpoints: _Checkpoints = _Checkpoints()


class _Outcome(BaseModel):
    """What is read again of `summary.json` and `progress.json`."""

    state: str = ""
    reason: str | None = None
    message: str | None = None
    attempts: int | None = None
    restarts: tuple[_Restart, ...] = ()
    checkpoints: _Checkpoints = _Checkpoints()
    earlier: _Earlier = _Earlier()
    parameters: int | None = None
    reader: str | None = None
    steps: int | None = None
    rows: int | None = None
    rows_per_s: float | None = None
    places: tuple[dict[str, str], ...] = ()
    stall_pct: tuple[float, ...] = ()
    seconds: tuple[dict[str, float], ...] = ()
    peak_memory: tuple[dict[str, int], ...] = ()
    stopped_early: dict[str, Any] | None = None
    warm_start: dict[str, Any] | None = None


_RECORD = TypeAdapter(Record)


def json_of(text: str) -> Any:
    """JSON values that can be written again.

    Raises:
        ValueError: The text is not JSON, is nested deeper than can be read, or has characters that
            no file can hold.
    """
    try:
        document = json.loads(text)
        if "\\u" in text:  # perhaps half of a surrogate pair
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return document


def outcome_of(text: str) -> Mapping[str, Any]:
    """How a run stands, or ended.

    Raises:
        ValueError: This is no such document.
    """
    document: Mapping[str, Any] = json_of(text)
    _Outcome.model_validate_json(text, strict=True)
    return document


def record_of(line: bytes) -> Record:
    """A record.

    Raises:
        ValueError, TypeError, KeyError: This is none.
    """
    record = record_from_json(json_of(line.decode()))
    _RECORD.validate_json(line, strict=True)
    return record


def why(error: Exception) -> str:
    """What is wrong, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors()[0]
    return f"{'.'.join(map(str, found['loc']))}: {found['msg']}"
