"""Keeps the scores of an interrupted command, for `predict` with `resume`.

The scores are in a folder beside the output, `.OUT.scored/NAME`, with one file for each piece of
the input. NAME is a hash of everything that determines the scores; a later command reuses the files
if it would make the same scores. Tasks of a killed command may still run. They write to the folder
NAME of that command, and fail once it is removed. Next to the finished scores, the file
`.distrain-scores.json` contains their NAME and the sizes of their files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrain.storage.identity import file_identity
from distrain.storage.outputs import atomic_file, translated_errors
from distrain.version import __version__

_FINISHED = ".distrain-scores.json"


def scored_folder(out: Path) -> Path:
    """Return the hidden folder beside `out` that keeps scores for a later command."""
    final = out.resolve() if out.is_symlink() else out.absolute()
    return final.with_name(f".{final.name}.scored")


def name_of_scores(
    model: Sequence[str], settings: dict[str, Any], pieces: Sequence[tuple[str, Any]]
) -> str:
    """Return a name that identifies scores: a hash of everything that determines them.

    If a file has no version (`file_identity`), the name is random, so that scores are not reused.

    Args:
        model: The model's files, whose versions are hashed.
        settings: JSON values that affect scores or their files.
        pieces: The file and the row groups of each piece. The versions of the files are hashed.
    """
    used = [*model, *dict.fromkeys(file for file, _ in pieces)]
    identities = {file: file_identity(file) for file in used}
    if not all(identities.values()):  # a store without versions may hold other rows by now
        return uuid.uuid4().hex
    document = [__version__, identities, settings, [list(piece) for piece in pieces]]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:32]


def open_scored(folder: Path, name: str) -> Path:
    """Create or reuse the folder `name` in `folder`, and return it; remove all other folders.

    Also removes partial files that killed tasks left in the folder. Raises `OutputError` if it
    cannot be created.
    """
    own = folder / name
    with translated_errors(folder):
        own.mkdir(parents=True, exist_ok=True)
        for other in folder.iterdir():
            if other != own:
                shutil.rmtree(other, ignore_errors=True)
        for left in own.glob(".*.partial-*"):  # files of tasks that were killed
            left.unlink(missing_ok=True)
    return own


def write_finished(folder: Path, name: str, files: Sequence[str]) -> None:
    """Write the file that marks a folder as complete, with the scores `name` in `files`."""
    document = {"made_of": name, "size_bytes": _sizes(folder, files)}
    with atomic_file(folder / _FINISHED, sync=False) as partial:
        partial.write_text(json.dumps(document) + "\n")


def is_finished(folder: Path, name: str, files: Sequence[str]) -> bool:
    """Return True if a folder has the complete scores `name` (see `name_of_scores`).

    It must have the files `files`, with the sizes at the time of `write_finished`.
    """
    try:
        document = json.loads((folder / _FINISHED).read_text())
        return bool(document == {"made_of": name, "size_bytes": _sizes(folder, files)})
    except (OSError, ValueError):
        return False


def _sizes(folder: Path, files: Sequence[str]) -> dict[str, int]:
    return {file: (folder / file).stat().st_size for file in files}
