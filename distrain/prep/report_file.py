"""Reads `prep.json`, the report that `prep` writes beside the prepared rows."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from distrain.storage.urls import is_remote

PREP_JSON = "prep.json"


def read_report(folder: Path) -> Any:
    """Return the content of a folder's `prep.json`; `None` if there is none, or it is damaged."""
    with suppress(OSError, ValueError):
        return json.loads((folder / PREP_JSON).read_bytes())
    return None


def report_of(patterns: Sequence[str]) -> tuple[str, Any] | None:
    """Return `train` or `valid`, and the content of `prep.json` beside the folder of that name.

    `patterns` are paths, globs or URLs of prepared files. The result is that of the first pattern
    that names such a folder, or something up to two levels below one, and whose `prep.json` can be
    read. `None` if there is none; URLs are ignored.
    """
    for pattern in patterns:
        path = Path(pattern)
        for folder in () if is_remote(pattern) else (path, *path.parents[:2]):
            if folder.name in ("train", "valid"):
                report = read_report(folder.parent)
                if report is not None:
                    return folder.name, report
    return None
