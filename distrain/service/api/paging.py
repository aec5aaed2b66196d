"""Cursors: where a list goes on, and for which filters. Pure."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from distrain.service.api.problems import Problem


def cursor(seq: int, filters: Mapping[str, Any]) -> str:
    """The cursor of the page after the job with this seq.

    >>> seq_of(cursor(7, {"project": "ads"}), {"project": "ads"})
    7
    """
    return base64.urlsafe_b64encode(f"{seq}.{_mark(filters)}".encode()).decode().rstrip("=")


def seq_of(text: str, filters: Mapping[str, Any]) -> int:
    """The seq in a cursor; `bad_request` for another list's cursor."""
    try:
        body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        seq, _, mark = body.decode("ascii").partition(".")
        number = int(seq) if seq.isdecimal() and len(seq) < 19 else None
    except (binascii.Error, ValueError):
        number, mark = None, ""
    if number is None or not mark:
        raise Problem("bad_request", "the cursor is not one that a list gave", hint=_HINT)
    if mark != _mark(filters):
        raise Problem("bad_request", "the cursor is that of a list with other filters", hint=_HINT)
    return number


_HINT = "Send the same filters with each page, and the last answer's next_cursor."


def _mark(filters: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(filters, sort_keys=True).encode()).hexdigest()[:16]
