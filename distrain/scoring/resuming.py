"""Scores that outlive the command that was to write them.

They lie in a folder beside the output, `.OUT.scored`: a file for each piece of the input, and what
they were made of. Another command goes on from there if it would make the same scores.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrain.storage import file_identity, translated_errors, whole_file

_PLAN = "plan.json"
_VERSION = 1


def scored_folder(out: Path) -> Path:
    """Where the scores of an output are kept meanwhile."""
    final = out.resolve() if out.is_symlink() else out.absolute()
    return final.with_name(f".{final.name}.scored")


def plan_of(weights: str, settings: dict[str, Any], pieces: Sequence[tuple[str, Any]]) -> str:
    """What scores depend on, as text.

    Args:
        weights: The file with the model's weights.
        settings: JSON values that change scores or their files.
        pieces: The input file of each piece, and which of its row groups it has.
    """
    used = [weights, *dict.fromkeys(file for file, _ in pieces)]
    identities = {file: file_identity(file) for file in used}
    document = {
        "version": _VERSION,
        "files": identities,
        "known": all(identities.values()),  # a store without versions may hold other rows by now
        "settings": settings,
        "pieces": [[file, groups] for file, groups in pieces],
    }
    return json.dumps(document, indent=1) + "\n"


def open_scored(folder: Path, plan: str) -> None:
    """Make the folder, empty unless it has scores of the same plan.

    Raises:
        OutputError: It cannot be made.
    """
    with translated_errors(folder):
        if _read_plan(folder) != plan or not json.loads(plan)["known"]:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".*.partial-*"):  # of tasks that were killed
            left.unlink(missing_ok=True)
    with whole_file(folder / _PLAN, make_folder=False) as partial:
        partial.write_text(plan)


def _read_plan(folder: Path) -> str | None:
    try:
        return (folder / _PLAN).read_text()
    except (OSError, UnicodeDecodeError):
        return None
