"""Inputs to parts: text is staged, parquet is inspected by its footers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.etl.lists import holds_lists
from distrain.etl.operators import category_type
from distrain.etl.parts import Part, kept_names, readable_parquet, rows_of_groups
from distrain.etl.progress import ProgressCallback, ReadCounter, TaskSize, bytes_of_tasks
from distrain.etl.raw_lines import RAW_COLUMNS, BadLineTally
from distrain.etl.request import PrepRequest
from distrain.etl.staging import StagedText, stage_text
from distrain.etl.texts import TextRange, plan_all
from distrain.etl.workers import TaskRunner
from distrain.etl.workflow import Workflow
from distrain.schema import LABEL
from distrain.storage import (
    RETRY_S,
    InputFile,
    is_remote,
    open_folder,
    open_input,
    path_or_url,
    with_retries,
)
from distrain.wording import some

_SHOWN_COLUMNS = 12

_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FOREIGN = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
    b"ORC": "ORC",
}
PARQUET = "parquet"
_LISTS, _FLAT = "lists", "single values"


@dataclass(frozen=True)
class ReadInputs:
    """What is in the inputs.

    Attributes:
        parts: All rows, in input order.
        bad_lines: The lines left out.
        category_types: `int64` or `string`, by categorical column that has values.
        valid_parts: The rows for validation, where a column says which; the others are in `parts`.
        unlabelled: How many rows were left out since their target is missing.
    """

    parts: tuple[Part, ...]
    bad_lines: BadLineTally
    category_types: dict[str, str]
    valid_parts: tuple[Part, ...] | None = None
    unlabelled: int = 0

    @property
    def num_rows(self) -> int:
        """How many rows are in `parts`."""
        return sum(part.num_rows for part in self.parts)

    @property
    def num_good(self) -> int:
        """How many rows were read that are no bad lines: those without a label, too."""
        valid = sum(part.num_rows for part in self.valid_parts or ())
        return self.num_rows + valid + self.unlabelled


def detect_format(path: str) -> str | None:
    """`parquet`, `gzip`, `zstd`, or `None` for plain text, by the file's first bytes."""
    with open_input(path, retry_s=RETRY_S) as handle:
        head = handle.read(8)
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise DataError(
                f"{name} files are not supported",
                where={"file": path},
                hint="Use plain text, gzip, zstd or parquet.",
            )
    if head.startswith((b"PAR1", b"PARE")):  # the second has an encrypted footer, as Arrow tells
        return PARQUET
    if path.endswith((".parquet", ".pq")):
        raise DataError(
            "not a parquet file, though named like one",
            where={"file": path},
            hint="Its first bytes are not PAR1; write it again.",
        )
    return next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), None)


def refuse_files(
    files: Sequence[InputFile], valid_files: Sequence[InputFile], prepared_mark: str
) -> None:
    """Refuse files that stand on both sides, and rows of folders with a file `prepared_mark`."""
    shared = {file.path for file in files} & {file.path for file in valid_files}
    if shared:
        raise InputError(
            "files are named both for training and for validation",
            where={"files": ", ".join(sorted(shared)[:5])},
            hint="Metrics on rows seen in training mean nothing; name other files.",
        )
    # Prepared rows have Criteo's column names too; a second logarithm would pass unnoticed.
    for folder in {os.path.dirname(file.path) for file in (*files, *valid_files)}:
        parent, name = os.path.split(folder)
        if name in ("train", "valid") and _is_file(os.path.join(parent, prepared_mark)):
            raise InputError(
                "the rows are prepared already",
                where={"folder": path_or_url(folder)},
                hint="Name the raw files, or go on with `distrain train`.",
            )


def _is_file(place: str) -> bool:
    if not is_remote(place):
        return Path(place).is_file()
    folder, _, name = place.rpartition("/")
    return name in with_retries(open_folder(folder).files, {"folder": folder}, RETRY_S)


def read_inputs(
    files: Sequence[InputFile],
    request: PrepRequest,
    workflow: Workflow,
    runner: TaskRunner,
    staging: str,
    on_progress: ProgressCallback,
) -> ReadInputs:
    """Stage text, look at parquet, in input order.

    `staging` is an existing folder or a URL for the staging files, shared with the workers.
    """
    tasks = _tasks(files, request, runner)
    _check_text_columns(tasks, workflow, request.keep)
    kept_names(request.keep, workflow.columns)
    sizes = [TaskSize(file.path, file.size_bytes, text) for _, _, file, text in tasks]
    counter = ReadCounter(bytes_of_tasks(sizes), on_progress)

    def count(place: int, result: StagedText | InspectedFile) -> None:
        counter.add(place, sum(part.num_rows for part in result.parts))

    columns = (workflow.columns, workflow.categorical)
    arguments = [(*task, request, columns, staging) for task in tasks]
    results = runner.run("read", _read_one, arguments, count)
    parts: list[Part] = []
    for _, of_file in groupby(zip(tasks, results, strict=True), key=lambda pair: pair[0][0]):
        for range_parts in parts_in_file((r.parts, _bad_lines(r).count) for _, r in of_file):
            parts += range_parts
    text_types = dict.fromkeys(workflow.categorical, "int64")
    flat = dict.fromkeys(workflow.columns, _FLAT)
    found = [
        (file.path, r.shapes, r.category_types)
        if isinstance(r, InspectedFile)
        else (file.path, flat, text_types)
        for (_, _, file, _), r in zip(tasks, results, strict=True)
    ]
    hint = "Write the files anew with one of the two."
    same_in_all([(path, shapes) for path, shapes, _ in found], hint)
    hint = "Raw Criteo text counts as int64; prepare such files separately."
    types = same_in_all([(path, types) for path, _, types in found], hint)
    return ReadInputs(tuple(parts), _tally(tasks, results), types)


_Task = tuple[int, int, InputFile, TextRange | None]


def _tasks(files: Sequence[InputFile], request: PrepRequest, runner: TaskRunner) -> list[_Task]:
    kinds = [detect_format(file.path) for file in files]
    texts = [(file, kind) for file, kind in zip(files, kinds, strict=True) if kind != PARQUET]
    planned = iter(plan_all(texts, request.block_bytes, runner))
    tasks: list[_Task] = []
    for number, (file, kind) in enumerate(zip(files, kinds, strict=True)):
        ranges: Sequence[TextRange | None] = [None] if kind == PARQUET else next(planned)
        tasks += [(number, place, file, text) for place, text in enumerate(ranges)]
    return tasks


def parts_in_file(ranges: Iterable[tuple[Sequence[Part], int]]) -> Iterator[list[Part]]:
    """The parts of a file's ranges, each with the number of rows before the range.

    Of each range, `ranges` has the parts and how many bad lines there were.
    """
    before = 0
    for parts, num_bad in ranges:
        yield [replace(part, rows_before=before) for part in parts]
        before += sum(part.num_rows for part in parts) + num_bad


def _check_text_columns(tasks: Sequence[_Task], workflow: Workflow, keep: Sequence[str]) -> None:
    unknown = [column for column in workflow.columns if column not in RAW_COLUMNS]
    text = next((file.path for _, _, file, text in tasks if text), None)
    if unknown and text:
        raise DataError(
            f"raw Criteo lines have no columns {', '.join(unknown)}",
            where={"file": text},
            hint="A workflow with other columns needs parquet inputs.",
        )
    if keep and text:
        raise InputError(
            f"raw Criteo lines hold nothing to keep: {', '.join(keep)}",
            where={"file": text},
            hint="Each row's place, row_number, is written with --unlabeled.",
        )


def _read_one(
    number: int,
    range_number: int,
    file: InputFile,
    text: TextRange | None,
    request: PrepRequest,
    columns: tuple[tuple[str, ...], tuple[str, ...]],
    staging: str,
) -> StagedText | InspectedFile:
    if text is None:
        more = (*(() if request.unlabeled else (LABEL,)), *request.keep)
        return inspect_parquet(file.path, *columns, request.part_rows, more)
    stem = f"{staging}/{number:05d}-{range_number:05d}"
    layout = replace(request.layout, labeled=not request.unlabeled)
    settings = (request.skip_bad_lines, request.block_bytes, stem, request.is_traced)
    return stage_text(text, layout, *settings)


def _tally(tasks: Sequence[_Task], results: Sequence[StagedText | InspectedFile]) -> BadLineTally:
    total = BadLineTally()
    pairs = zip(tasks, results, strict=True)
    for _, ranges in groupby(pairs, key=lambda pair: pair[0][0]):
        lines = 0
        for (_, _, file, _), result in ranges:
            if isinstance(result, StagedText):
                total = total.merged(result.bad_lines.shifted(file.path, lines))
                lines += result.num_lines
    return total


def _bad_lines(result: StagedText | InspectedFile) -> BadLineTally:
    return result.bad_lines if isinstance(result, StagedText) else BadLineTally()


@dataclass(frozen=True)
class InspectedFile:
    """A parquet input that can be used.

    Attributes:
        parts: Its row groups, small neighbours together.
        category_types: `int64` or `string`, by categorical column; of lists, what their items are.
        shapes: `lists` or `single values`, by column.
    """

    parts: tuple[Part, ...]
    category_types: dict[str, str]
    shapes: dict[str, str]


def inspect_parquet(
    path: str,
    columns: Sequence[str],
    categorical: Sequence[str],
    part_rows: int,
    more: Sequence[str] = (LABEL,),
) -> InspectedFile:
    """Check one file's columns and types and cut it into parts of about `part_rows` rows.

    `more` are the columns that are no features: the label, and those that rows keep, of any type.
    A `DataError` names all columns that are missing or of an unusable type.
    """
    with readable_parquet(path) as file:
        schema = file.schema_arrow
        rows = rows_of_groups(file)
    mistakes = {}
    types: dict[str, str] = {}
    for column in dict.fromkeys((*more, *columns)):
        mistake = _mistake(schema, column, column in categorical)
        if mistake and (column in (LABEL, *columns) or column not in schema.names):
            mistakes[column] = mistake
        elif column in categorical and not pa.types.is_null(
            of := _of_item(schema.field(column).type)
        ):
            types[column] = category_type(of)
    if mistakes:
        raise _unusable(path, schema.names, mistakes, len(columns) + len(more))
    shapes = {c: _LISTS if holds_lists(schema.field(c).type) else _FLAT for c in columns}
    return InspectedFile(tuple(parts_of_row_groups(path, rows, part_rows)), types, shapes)


def same_in_all(files: Sequence[tuple[str, dict[str, str]]], hint: str) -> dict[str, str]:
    """What each column holds, which must be the same in all files."""
    first: dict[str, tuple[str, str]] = {}
    for path, columns in files:
        for column, found in columns.items():
            known_path, known = first.setdefault(column, (path, found))
            if known != found:
                raise DataError(
                    f"the column holds {found} here and {known} in an earlier file",
                    where={"column": column, "file": path, "earlier file": known_path},
                    hint=hint,
                )
    return {column: found for column, (_, found) in first.items()}


def _unusable(
    path: str, held: Sequence[str], mistakes: Mapping[str, str], num_wanted: int
) -> DataError:
    """Of a table of another kind it says what the table is, not what each column lacks."""
    missing = [column for column, mistake in mistakes.items() if mistake == "missing"]
    if len(missing) <= num_wanted // 2:
        return DataError(
            f"{len(mistakes)} of {num_wanted} columns cannot be used",
            where={"file": path, **{f"column {c}": m for c, m in mistakes.items()}},
            hint="Rename or convert the columns, or leave the file out.",
        )
    return DataError(
        f"another table than the workflow is for: {len(missing)} of its {num_wanted} columns are "
        "missing",
        where={
            "file": path,
            "columns here": some(held, _SHOWN_COLUMNS),
            "columns missing": some(missing, _SHOWN_COLUMNS),
        },
        hint="`distrain prep` fits the columns of Criteo's logs. For a table of your own name its "
        "columns with --config, as docs/any-table.md shows, or write a Workflow in Python; what "
        "holds ids and finite numbers already needs a schema only, and trains as it is.",
    )


def _mistake(schema: pa.Schema, column: str, is_categorical: bool) -> str | None:
    if column not in schema.names:
        return "missing"
    dtype = schema.field(column).type
    if column != LABEL:
        dtype = _of_item(dtype)
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    is_integer = pa.types.is_integer(dtype)
    if column != LABEL and pa.types.is_null(dtype):
        return None
    if is_categorical:
        text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
        return None if is_integer or text else f"{dtype}, not integer or string"
    if is_integer or pa.types.is_floating(dtype):
        return None
    if column == LABEL and pa.types.is_boolean(dtype):
        return None
    return f"{dtype}, not a number"


def _of_item(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if holds_lists(dtype) else dtype


def parts_of_row_groups(path: str, rows: Sequence[int], part_rows: int) -> list[Part]:
    """Row groups of so many rows each as parts of about `part_rows` rows."""
    parts: list[Part] = []
    groups: list[int] = []
    first_row = num_rows = 0
    for group, group_rows in enumerate(rows):
        if groups and num_rows + group_rows > part_rows:
            parts.append(Part(path, tuple(groups), num_rows, path, first_row=first_row))
            first_row, num_rows, groups = first_row + num_rows, 0, []
        groups.append(group)
        num_rows += group_rows
    if num_rows:
        parts.append(Part(path, tuple(groups), num_rows, path, first_row=first_row))
    return parts
