"""Identifies the workflow that defines a table's ids, and converts ids between vocabularies.

`distrain prep` writes a folder `workflow/` next to the schema, with a vocabulary for each
categorical column, and the operators of all columns. Saved models and checkpoints store the path of
that folder and checksums of its content. If the checksums of two tables are equal, equal ids mean
the same value. A later change of a file is detected.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xxhash

from distrain.errors import DataError, DistrainError
from distrain.prep.steps import FIRST_OOV_ID
from distrain.prep.vocabulary import (
    CATEGORIES,
    ROW_GROUP_VALUES,
    WORKFLOW_FILE,
    Vocabulary,
    is_text,
    read_batches,
    read_meta,
)
from distrain.schema.schema import Schema
from distrain.storage.folder import open_folder
from distrain.storage.inputs import open_input, read_bytes
from distrain.storage.retrying import RETRY_S, with_retries

log = logging.getLogger("distrain.rank")

WORKFLOW = "workflow"

_READ_BYTES = 1 << 24


@dataclass(frozen=True)
class VocabularyFile:
    """The vocabulary of a column, in a folder or at a URL."""

    folder: str
    name: str  # the stem of its files: the column, or its domain
    xxh3_64: str

    @property
    def is_unchanged(self) -> bool:
        return _checksum(self.folder, self.name) == self.xxh3_64

    def read(self) -> Vocabulary:
        return Vocabulary.load(self.folder, self.name)

    def agrees_with(self, other: "VocabularyFile") -> bool:
        """Return True if each id that both vocabularies have means the same value in both.

        One of them may have more values at its end. If the checksums differ, the files are read, in
        pieces. Returns False if the checksums differ and one of the files has changed since its
        checksum was computed. Raises `DataError` if a file cannot be read, and `Unavailable` if the
        storage does not answer.
        """
        if self.xxh3_64 == other.xxh3_64:
            return True
        if not (self.is_unchanged and other.is_unchanged):
            return False
        one, two = ((file.folder, file.name) for file in (self, other))
        if read_meta(*one)["oov"]["num_indices"] != read_meta(*two)["oov"]["num_indices"]:
            return False
        pieces = (read_batches(*file, ROW_GROUP_VALUES) for file in (one, two))
        return all(
            first[: len(second)].equals(second[: len(first)])
            for (first, _), (second, _) in zip(*pieces, strict=False)
        )


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies and operators that define a table's values, as far as they are known."""

    files: Mapping[str, VocabularyFile]  # the vocabularies of categorical columns
    workflow: str = ""  # the workflow's folder or URL; "" if unknown
    # a checksum of each column's operators, without `Categorify` and so without its vocabulary
    operators: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        files = {column: [file.folder, file.name, file.xxh3_64] for column, file in
                 self.files.items()}  # fmt: skip
        workflow = {"folder": self.workflow, "operators": dict(self.operators)}
        return {"vocabularies": files, WORKFLOW: workflow}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Vocabularies":
        """Return the vocabularies for the JSON values of `to_json`; empty if these are invalid."""
        try:
            items = dict(document.get("vocabularies") or {}).items()
            files = {str(c): VocabularyFile(*map(str, file)) for c, file in items}
            said = dict(document.get(WORKFLOW) or {})
            known = {str(c): str(sum_) for c, sum_ in dict(said.get("operators") or {}).items()}
        except (TypeError, ValueError):
            return cls({})
        older = next((os.path.dirname(file.folder) for file in files.values()), "")
        return cls(files, str(said.get("folder") or older), known)

    def kept_in(self, workflow: str) -> "Vocabularies":
        """Return these vocabularies with other paths: those of their copies in `workflow`."""
        folder = f"{workflow}/{CATEGORIES}"
        files = {column: replace(file, folder=folder) for column, file in self.files.items()}
        return Vocabularies(files, workflow, self.operators)

    def unlike(self, other: "Vocabularies") -> list[str]:
        """Return the columns, known in both, for which equal ids or numbers differ in meaning."""
        return [
            *(c for c, sum_ in self.operators.items() if other.operators.get(c, sum_) != sum_),
            *(c for c, file in self.files.items()
              if c in other.files and not file.agrees_with(other.files[c])),
        ]  # fmt: skip


def vocabularies_in(workflow: str, schema: Schema) -> Vocabularies:
    """Return the vocabularies and operators of a schema's columns in a workflow (a folder or URL).

    Columns whose files cannot be read are left out.
    """
    folder = f"{workflow}/{CATEGORIES}"
    held = _files(folder)
    checksums = {
        name: _checksum(folder, name, held)
        for name in dict.fromkeys(column.domain for column in schema.categorical)
    }
    files = {
        column.name: VocabularyFile(folder, column.domain, checksum)
        for column in schema.categorical
        if (checksum := checksums[column.domain]) is not None
    }
    operators = {c: s for c, s in _operators(workflow).items() if c in schema.names}
    return Vocabularies(files, workflow if files or operators else "", operators)


def check_meaning(known: Vocabularies, whose: str, files: Iterable[str], schema: Schema) -> None:
    """Raise `DataError` if a file was prepared with a workflow that differs from `known`.

    Workflows differ if an id, or a number, has another meaning.

    Args:
        whose: Whose vocabularies `known` are, for the error's message.
        files: Tables; those without a workflow next to them are accepted.
    """
    for workflow, file in workflows_next_to(files).items():
        if workflow == known.workflow:
            continue
        others = known.unlike(vocabularies_in(workflow, schema))
        if others:
            raise DataError(
                f"{', '.join(others[:5])} mean something else here than in {whose}: the rows were "
                "prepared with another workflow",
                where={
                    "file": file,
                    "columns": ", ".join(others),
                    f"workflow of {whose}": known.workflow,
                    "workflow of the file": workflow,
                },
                hint=f"Prepare them with the first: `distrain prep RAW --workflow "
                f"{known.workflow} --out DIR`. `distrain predict` and `evaluate` take raw rows, "
                "too.",
            )


def workflows_next_to(files: Iterable[str]) -> dict[str, str]:
    """Return the workflow of each file's folder: `workflow` in that folder, or else in its parent.

    Maps each workflow's path to a file with this workflow: the first of `files` in one of its
    folders.
    """
    first = {os.path.dirname(file): file for file in reversed(list(files))}
    found: dict[str, str] = {}
    looked_at: dict[str, bool] = {}
    for folder, file in reversed(first.items()):
        for place in (folder, os.path.dirname(folder)):
            workflow = f"{place}/{WORKFLOW}"
            if workflow not in looked_at:
                looked_at[workflow] = WORKFLOW_FILE in _files(workflow)
            if looked_at[workflow]:
                found.setdefault(workflow, file)
                break
    return found


def new_ids(old: Vocabulary, new: Vocabulary) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return, for each id of `old`, the id of the same value in `new`.

    Padding and missing values keep their ids. Out-of-vocabulary ids stay the same if both
    vocabularies have the same number of them, since a value that is in neither then gets the same
    id from both; otherwise they get -1.

    Returns:
        `[old.cardinality]`, int32; -1 also for values that are not in `new`.

    Raises:
        DataError: One vocabulary has strings, the other one integers.
    """
    was, now = ("strings" if is_text(v.values.type) else "integers" for v in (old, new))
    if was != now:
        raise DataError(f"its values were {was} and are {now}")
    ids = np.full(old.cardinality, -1, np.int32)
    same_buckets = old.num_oov == new.num_oov
    kept = old.first_value_id if same_buckets else FIRST_OOV_ID
    ids[:kept] = np.arange(kept)
    found = new.encode(old.values)
    ids[old.first_value_id :] = np.where(found >= new.first_value_id, found, -1)
    return ids


def _operators(workflow: str) -> dict[str, str]:
    """Return, by column, a checksum of the settings of its operators other than `Categorify`.

    Settings of other columns do not count. Returns `{}` if the workflow cannot be read.
    """
    try:
        groups = json.loads(read_bytes(f"{workflow}/{WORKFLOW_FILE}"))["groups"]
        return {
            column: xxhash.xxh3_64_hexdigest(
                json.dumps(_of_column(group["operators"], column)).encode()
            )
            for group in groups
            for column in group["columns"]
        }
    except (OSError, ValueError, LookupError, TypeError, DistrainError) as error:
        if WORKFLOW_FILE in _files(workflow):
            log.warning("the workflow in %s cannot be read: %s", workflow, error)
        return {}


def _of_column(operators: Iterable[Mapping[str, Any]], column: str) -> list[Any]:
    return [
        {key: v.get(column) if isinstance(v, dict) else v for key, v in operator.items()}
        for operator in operators
        if operator["kind"] != "Categorify"
    ]


def _files(folder: str) -> list[str]:
    try:
        return with_retries(open_folder(str(folder)).files, {"folder": folder}, RETRY_S)
    except (OSError, DistrainError) as error:
        log.warning("%s cannot be listed: %s", folder, error)
        return []


def _checksum(folder: str, name: str, held: Iterable[str] | None = None) -> str | None:
    """Return the checksum of a vocabulary's two files; `None` if one cannot be read.

    `held` are the names of the files in `folder`; `None` to list them here.
    """
    held = _files(folder) if held is None else held
    hashed = xxhash.xxh3_64()
    for file in (f"meta.{name}.parquet", f"unique.{name}.parquet"):
        if file not in held:
            return None
        try:
            with open_input(f"{folder}/{file}", retry_s=RETRY_S) as handle:
                while content := handle.read(_READ_BYTES):
                    hashed.update(content)
        except (OSError, DistrainError) as error:
            log.warning("the vocabulary of %s in %s cannot be read: %s", name, folder, error)
            return None
    return hashed.hexdigest()
