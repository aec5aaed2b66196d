"""Records the input files of a workflow, so that a model knows the rows that it trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa

from distrain.errors import DataError, Unavailable
from distrain.jobs.spec.paths import absolute
from distrain.prep.rows_in_memory import folder_of_rows
from distrain.prep.workflow import RAW_FILES, Workflow
from distrain.storage.inputs import InputFile, list_inputs


def with_raw_files(workflow: Workflow, **parts: Iterable[InputFile]) -> Workflow:
    """Return the workflow with further input files in its record, by part (`train`, `valid`).

    The record tells a model's later users which files it was trained on.
    """
    known = workflow.record.get(RAW_FILES, {})
    files = {
        part: {**known.get(part, {}), **{absolute(file.path): file.size_bytes for file in added}}
        for part, added in parts.items()
    }
    return workflow.with_record(**{RAW_FILES: files})


def holds_files(workflow: Workflow, files: Sequence[str], parts: Sequence[str]) -> bool:
    """Return True if a workflow was fitted or updated on one of the files.

    Looks them up in the workflow's record (`RAW_FILES`), under the given `parts`: `train`, `valid`.
    A file with another size than then has changed, so it does not count.
    """
    known = _known(workflow, parts)
    same = [path for path in files if absolute(path) in known]
    with suppress(DataError, Unavailable):
        return any(known[absolute(one.path)] == one.size_bytes for one in list_inputs(same))
    return False


def holds_rows(workflow: Workflow, rows: pa.Table, parts: Sequence[str]) -> bool:
    """Return True if a workflow was fitted or updated on these rows in memory.

    Looks them up in the workflow's record, under the given `parts`: `train`, `valid`.
    """
    folders = {path.split("/")[-2] for path in _known(workflow, parts) if path.count("/") > 1}
    stored = any(name.startswith("rows-") for name in folders)
    return stored and folder_of_rows(rows) in folders


def _known(workflow: Workflow, parts: Sequence[str]) -> dict[str, int]:
    files = workflow.record.get(RAW_FILES, {})
    return {path: size for part in parts for path, size in files.get(part, {}).items()}
