"""Ensures that all runs in a folder belong to the same spec."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distrain.errors import InputError
from distrain.jobs.spec.load import dump_yaml, parse_yaml
from distrain.storage.outputs import atomic_file


def claim_folder(
    folder: Path,
    document: Mapping[str, Any],
    parsed: Callable[[Any], object],
    *,
    holds: str,
    hint: str,
) -> None:
    """Write a document to a folder's `spec.yaml`, unless the folder has the same one already.

    Args:
        folder: The folder of the runs, which is made if it is missing.
        document: The spec, with everything else on which the runs depend.
        parsed: Parses such a document. Parsed documents are compared, so fields that later
            versions add get their defaults.
        holds: Completes the error's message, "the folder ...", such as "has runs of another spec".
        hint: The error's hint.

    Raises:
        InputError: The folder has another document.
    """
    place = folder / "spec.yaml"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(place) as file:
            file.write_text(dump_yaml(document))
    if parsed(parse_yaml(place.read_text())) != parsed(document):
        raise InputError(f"the folder {holds}", where={"path": str(folder)}, hint=hint)
