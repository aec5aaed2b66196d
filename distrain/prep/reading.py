"""Reads the inputs: divides their rows into parts, and counts bad lines and dropped rows.

Four kinds of object share the work; their modules are in `prep/features`:
- A **document** (`document`) describes a table's columns and validation rows, independent of files.
  The default is the built-in document: the workflow's columns unchanged, and text in Criteo's form.
- A **file** (`table_file`) is inspected once, for its format, its columns and their types.
- A **reader** (`text_rows`) converts a block of lines to rows; there is one for each form of text.
  It handles neither the ranges of a file nor bad values.
- **Staging** computes labels and features of rows, and writes them to files that tasks read
  repeatedly. It does not depend on the form of text.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.prep.bad_lines import BadLineTally
from distrain.prep.features.config import FEATURES_FILE, FeatureConfig
from distrain.prep.features.document import HashSplit, RandomSplit
from distrain.prep.features.file_checks import looked_at, same_in_all, table_file_of
from distrain.prep.features.inference.infer import rows_of
from distrain.prep.features.joins import side_tables
from distrain.prep.features.rows import FEWEST_HASHED
from distrain.prep.features.staging import Staged, StagingTask, stage_rows
from distrain.prep.features.table_file import TableFile
from distrain.prep.parts import Part, parts_of_row_groups
from distrain.prep.progress import PhaseCounter, ProgressCallback
from distrain.prep.report_file import PREP_JSON
from distrain.prep.request import PrepRequest
from distrain.prep.text_files.byte_ranges import plan_ranges
from distrain.prep.workers import TaskRunner
from distrain.prep.workflow import RAW_FILES, Workflow
from distrain.storage.folder import open_folder
from distrain.storage.inputs import InputFile, list_inputs
from distrain.storage.retrying import RETRY_S, with_retries
from distrain.storage.urls import is_remote, path_or_url

_SHOWN_ROWS, _SHOWN_VALUES = 1000, 8


@dataclass(frozen=True)
class ReadInputs:
    """The staged rows of a preparation's inputs."""

    parts: tuple[Part, ...]
    bad_lines: BadLineTally
    category_types: dict[str, str]  # `int64` or `string`, by categorical column that has values
    # the validation rows, if the document selects them by a column; other rows are in `parts`
    valid_parts: tuple[Part, ...] = ()
    unlabelled: int = 0  # number of rows dropped because their target is missing
    form: str = "table"  # the form of the first file, as from `form_of`
    test_parts: tuple[Part, ...] = ()  # the test rows, if the document selects them by values

    @property
    def all_parts(self) -> tuple[Part, ...]:
        return (*self.parts, *self.valid_parts, *self.test_parts)

    def without(self, paths: Collection[str]) -> tuple[ReadInputs, list[Part]]:
        """Return the inputs without the files `paths`, and the parts of the files `paths`."""
        parts, valid, test = (
            tuple(part for part in side if part.source not in paths)
            for side in (self.parts, self.valid_parts, self.test_parts)
        )
        rest = replace(self, parts=parts, valid_parts=valid, test_parts=test)
        return rest, [part for part in self.all_parts if part.source in paths]

    @property
    def num_good(self) -> int:
        """Number of rows that are not bad lines, including rows dropped for their missing label."""
        return _num_rows(self.all_parts) + self.unlabelled


def with_features(request: PrepRequest) -> PrepRequest:
    """Return the request with its features; by default, those of its saved workflow.

    If the features document splits off the last rows, the split is moved to the request's fields.
    """
    features = request.features
    if features is None and request.saved_workflow is not None:
        features = saved_features(request.saved_workflow)
    if features is None:
        return request
    features = replace(
        features,
        unlabeled=request.unlabeled,
        keep=request.keep,
        is_fitted=request.saved_workflow is not None,
    )
    last = features.document.last_rows
    if last:
        document = features.document.model_copy(update={"split": None})
        features = replace(features, document=document)
    return replace(request, features=features, **last)


def saved_features(workflow_folder: Path | str) -> FeatureConfig | None:
    """Return the features document of a saved workflow; `None` if it has none."""
    folder = open_folder(str(workflow_folder))
    where = {"folder": workflow_folder}
    if FEATURES_FILE not in with_retries(folder.files, where, RETRY_S):
        return None
    return replace(FeatureConfig.load(f"{workflow_folder}/{FEATURES_FILE}"), is_fitted=True)


def workflow_of(features: FeatureConfig, saved: Workflow | None) -> Workflow:
    """Return the saved workflow or, if it is `None`, the workflow that the document describes.

    Raises an `InputError` if the two have different columns or histories.
    """
    made = features.workflow()
    if saved is None:
        return made
    others = sorted(set(made.columns) ^ set(saved.columns))
    others += sorted(set(made.categorical) ^ set(saved.categorical) - set(others))
    if others:
        raise InputError(
            "the saved workflow and the features document have different columns",
            where={"columns": ", ".join(others[:10])},
            hint=f"The workflow's folder contains its own {FEATURES_FILE}, which is used without "
            "--features.",
        )
    if made.history != saved.history:
        raise InputError(
            "the saved workflow and the features document have different histories",
            where={"saved": saved.history, "document": made.history},
            hint=f"The workflow's folder contains its own {FEATURES_FILE}, which is used without "
            "--features.",
        )
    return saved


def refuse_files(files: Sequence[InputFile], valid_files: Sequence[InputFile]) -> None:
    """Raise an `InputError` if a file is in both arguments, or if rows are prepared already.

    Rows are prepared already if they are in a folder `train` or `valid` beside a `prep.json`.
    """
    shared = {file.path for file in files} & {file.path for file in valid_files}
    if shared:
        raise InputError(
            "files are named for both training and validation",
            where={"files": ", ".join(sorted(shared)[:5])},
            hint="Metrics on training rows are meaningless; name other files.",
        )
    # Prepared rows have Criteo's column names, too. Without this check, they would be prepared
    # again, with a second logarithm.
    for folder in {os.path.dirname(file.path) for file in (*files, *valid_files)}:
        parent, name = os.path.split(folder)
        if name in ("train", "valid") and _is_file(os.path.join(parent, PREP_JSON)):
            raise InputError(
                "the rows are prepared already",
                where={"folder": path_or_url(folder)},
                hint="Name the raw files, or continue with `distrain train`.",
            )


def _is_file(place: str) -> bool:
    if not is_remote(place):
        return Path(place).is_file()
    folder, _, name = place.rpartition("/")
    return name in with_retries(open_folder(folder).files, {"folder": folder}, RETRY_S)


def read_inputs(
    files: Sequence[InputFile],
    features: FeatureConfig,
    request: PrepRequest,
    runner: TaskRunner,
    staging: str,
    on_progress: ProgressCallback,
    workflow: Workflow,
) -> ReadInputs:
    """Inspect all files, and stage their rows in input order in `staging`, a folder or a URL.

    Returns the staged rows. Raises a `DataError` if a file cannot be used, if a fit finds only
    binary labels of 0 or too few values for a split by hash, or if the document's split leaves no
    training or no validation rows.
    """
    sides = side_tables(features.document.joins)
    tables = looked_at(files, features, sides, runner)
    hint = "Write the files again with one of the two."
    shapes = same_in_all([(file.path, file.shapes(features)) for file in tables], hint)
    of_files = [(file.path, file.category_types(features)) for file in tables]
    reading = workflow.reading(features.document.format.null_values)
    if request.features is None:
        hint = "Raw Criteo text has values of the type int64; prepare such files separately."
        types = same_in_all(of_files, hint)
    else:
        types = _types_for_all([of for _, of in of_files], workflow.domains) | reading["holds"]
        reading["holds"] = types
    lists = frozenset(name for name, shape in shapes.items() if shape == "lists")
    staged: list[list[Staged]] = [[] for _ in tables]
    tasks: list[tuple[int, StagingTask]] = []
    for number, (file, pieces) in enumerate(zip(tables, _pieces(tables, request), strict=True)):
        tasks += [
            (
                number,
                StagingTask(
                    file,
                    rows,
                    features,
                    lists,
                    request.skip_bad_lines,
                    request.block_bytes,
                    f"{staging}/{number:05d}-{place:05d}",
                    **reading,
                ),
            )
            for place, rows in enumerate(pieces)
        ]
    counter = PhaseCounter("read", len(tasks), on_progress)
    results = runner.run(
        "read",
        stage_rows,
        [(task,) for _, task in tasks],
        lambda _, done: counter.add(_num_rows(done.all_parts)),
    )
    for (number, _), result in zip(tasks, results, strict=True):
        staged[number].append(result)
    read = _joined(tables, staged, types)
    num_ones = sum(result.num_ones for result in results)
    is_binary = features.document.target.kind == "binary"
    num_rows = _num_rows(read.all_parts)
    if request.saved_workflow is None and num_rows:
        if is_binary and request.features is not None and num_ones == 0:
            raise _no_ones(features, tables[0], num_rows)
        _check_hashes(features, frozenset[int]().union(*(result.hashes for result in results)))
    _check_split(read, features)
    return read


def _types_for_all(
    of_files: Sequence[dict[str, str]], domains: Mapping[str, str]
) -> dict[str, str]:
    """Return the category type of each categorical column, for all files together.

    It is `string` if the column, or another column of its domain, has texts in any file; otherwise
    `int64`. `of_files` has the types by file; `domains` has the domain of each column that shares
    one.
    """
    texts = {domains.get(c, c) for of in of_files for c, dtype in of.items() if dtype == "string"}
    columns = dict.fromkeys(column for of in of_files for column in of)
    return {c: "string" if domains.get(c, c) in texts else "int64" for c in columns}


def _pieces(files: Sequence[TableFile], request: PrepRequest) -> list[Sequence[Any]]:
    return [
        plan_ranges(InputFile(file.path, file.size_bytes), file.codec, request.block_bytes)
        if file.is_text
        else parts_of_row_groups(file.path, file.row_groups, request.part_rows)
        for file in files
    ]


def form_of(file: TableFile) -> str:
    """Return the form in which a file's rows are read: `csv`, `json` or `table`.

    `csv` is for fields of text, `json` for JSON lines, and `table` for typed columns.
    """
    return {"csv": "csv", "jsonl": "json"}.get(file.kind, "table")


def _joined(
    files: Sequence[TableFile], staged: Sequence[Sequence[Staged]], types: dict[str, str]
) -> ReadInputs:
    parts: list[Part] = []
    valid: list[Part] = []
    test: list[Part] = []
    unlabelled = 0
    for ranges in staged:
        rows = 0
        for one in ranges:
            parts += [replace(part, rows_before=rows) for part in one.parts]
            valid += [replace(part, rows_before=rows) for part in one.valid_parts]
            test += [replace(part, rows_before=rows) for part in one.test_parts]
            rows += _num_rows(one.all_parts) + one.num_left_out
            unlabelled += one.unlabelled
    tally, form = _tally(files, staged), form_of(files[0])
    return ReadInputs(tuple(parts), tally, types, tuple(valid), unlabelled, form, tuple(test))


def _tally(files: Sequence[TableFile], staged: Sequence[Sequence[Staged]]) -> BadLineTally:
    total = BadLineTally()
    for file, ranges in zip(files, staged, strict=True):
        lines = 0
        for one in ranges:
            total = total.merged(one.bad_lines.shifted(file.path, lines))
            lines += one.num_lines
    return total


def _num_rows(parts: Iterable[Part]) -> int:
    return sum(part.num_rows for part in parts)


def _no_ones(features: FeatureConfig, file: TableFile, num_rows: int) -> DataError:
    target = features.document.target
    where: dict[str, object] = {"column": target.column}
    if target.column in file.types:
        first = rows_of(file, features.document.format, [target.column], _SHOWN_ROWS)
        distinct = first.table[target.column].drop_null().unique().to_pylist()
        where["values in its first rows"] = ", ".join(map(repr, distinct[:_SHOWN_VALUES]))
    rule = "" if target.comparison is None else f": no row satisfies target.{target.comparison[0]}"
    return DataError(
        f"all {num_rows:,} labels are 0{rule}",
        where=where,
        hint="Name a value of the column, or another column, in target of the features document.",
    )


def _check_hashes(features: FeatureConfig, hashes: frozenset[int]) -> None:
    """Raise a `DataError` if a split by hash has fewer than `FEWEST_HASHED` different values.

    `hashes` are hashes of the split column's values; unequal hashes show different values.
    """
    split = features.document.split
    if isinstance(split, HashSplit) and len(hashes) < FEWEST_HASHED:
        raise DataError(
            f"a split by hash needs {FEWEST_HASHED} different values or more",
            where={"column": split.column, "different values": len(hashes)},
            hint="With fewer values the share of rows would depend on chance: set split to another "
            "column, or to {by: fraction, last: 0.1}.",
        )


def _check_split(read: ReadInputs, features: FeatureConfig) -> None:
    """Raise a `DataError` if a split by values leaves no training or no validation rows."""
    split = features.document.split
    is_drawn = isinstance(split, RandomSplit)  # after all rows were counted
    if split is None or is_drawn or bool(read.parts) == bool(read.valid_parts):
        return
    wanted = "validation" if read.parts else "training"
    num_rows = _num_rows(read.all_parts)
    raise DataError(
        f"no {wanted} rows: split by {split.by} puts all {num_rows:,} rows into the other part",
        where={"column": getattr(split, "column", "")},
        hint="Check the column's values, and change split in the features document.",
    )


@dataclass(frozen=True)
class RawSample:
    """Some raw rows, and the kind of file from which they were read."""

    table: pa.Table  # some raw columns
    form: str  # as from `form_of`


def first_rows(
    path: str | None, workflow: Workflow, features: FeatureConfig, most: int
) -> RawSample:
    """Return the first rows of a raw file, at most `most`, with the features' source columns.

    Args:
        path: The raw file; `None` for the first file of the workflow's fit that still exists.

    Raises:
        DataError: The file is missing, cannot be used, or has no rows.
        Unavailable: The storage does not answer.
    """
    config = replace(features.without_split(), unlabeled=True)
    file = list_inputs(path)[0] if path is not None else _fitted_file(workflow)
    look = replace(table_file_of(file.path, config), size_bytes=file.size_bytes)
    columns = config.document.columns.items()
    names = list(dict.fromkeys(one for name, column in columns for one in column.sources(name)))
    table = rows_of(look, config.document.format, names, most).table
    if not table.num_rows:
        raise DataError("the file holds no rows", where={"file": file.path})
    return RawSample(table, form_of(look))


def _fitted_file(workflow: Workflow) -> InputFile:
    known = list(workflow.record.get(RAW_FILES, {}).get("train", {}))
    for path in known:
        with suppress(DataError):
            return list_inputs(path)[0]
    raise DataError(
        "the raw rows that the workflow was fitted on are missing"
        if known
        else "the workflow does not record the raw rows that it was fitted on",
        where={"files": ", ".join(known[:3])} if known else {},
        hint="Name others with --sample FILE, in the form for `distrain prep`, labelled or not.",
    )
