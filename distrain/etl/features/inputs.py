"""Tables of any columns to parts, as a features document says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from distrain.errors import DataError, InputError
from distrain.etl.features.config import FEATURES_FILE, FeatureConfig
from distrain.etl.features.document import FractionSplit, RowsSplit
from distrain.etl.features.inferring import rows_of
from distrain.etl.features.joins import SideTable, side_tables
from distrain.etl.features.partitions import Values, partitions_of
from distrain.etl.features.staging import StagedTable, TableTask, stage_table_rows
from distrain.etl.features.table_file import AddedColumn, TableFile, look_at
from distrain.etl.parts import Part
from distrain.etl.progress import ProgressCallback, ReadCounter, TaskSize, bytes_of_tasks
from distrain.etl.raw_lines import BadLineTally
from distrain.etl.reading import (
    ReadInputs,
    parts_in_file,
    parts_of_row_groups,
    same_in_all,
)
from distrain.etl.request import PrepRequest
from distrain.etl.texts import TextRange, plan_all
from distrain.etl.workers import TaskRunner
from distrain.etl.workflow import Workflow
from distrain.storage import RETRY_S, InputFile, open_folder, with_retries

_LOOKED_AT_FIRST = 4
_SHOWN_ROWS, _SHOWN_VALUES = 1000, 8


def with_features(request: PrepRequest) -> PrepRequest:
    """The request with the features that its saved workflow was fitted with, if it has none.

    The last rows are split off as the request says, so what the document says of them goes there.
    """
    features = request.features
    if features is None and request.saved_workflow is not None:
        features = _saved_features(request.saved_workflow)
    if features is None:
        return request
    features = replace(features, unlabeled=request.unlabeled, keep=request.keep)
    match features.document.split:
        case RowsSplit(last=rows):
            return replace(request, features=features.without_split(), valid_rows=rows)
        case FractionSplit(last=share):
            return replace(request, features=features.without_split(), valid_fraction=share)
    return replace(request, features=features)


def _saved_features(workflow_folder: Path | str) -> FeatureConfig | None:
    folder = open_folder(str(workflow_folder))
    where = {"folder": workflow_folder}
    if FEATURES_FILE not in with_retries(folder.files, where, RETRY_S):
        return None
    return FeatureConfig.load(f"{workflow_folder}/{FEATURES_FILE}")


def workflow_of(features: FeatureConfig, saved: Workflow | None) -> Workflow:
    """What is fitted, or the saved workflow, which must be one of these columns.

    Raises:
        InputError: It is a workflow of other columns.
    """
    made = features.workflow()
    if saved is None:
        return made
    others = sorted(set(made.columns) ^ set(saved.columns))
    others += sorted(set(made.categorical) ^ set(saved.categorical) - set(others))
    if others:
        raise InputError(
            "the saved workflow and the features document are of other columns",
            where={"columns": ", ".join(others[:10])},
            hint=f"Its folder holds its own {FEATURES_FILE}, which is taken without --config.",
        )
    return saved


def check_tables(
    files: Sequence[InputFile], features: FeatureConfig, option: str = "--keep"
) -> None:
    """Raise a `DataError` if one of the first files lacks columns, before a cluster is started.

    `option` is what asks for the columns to keep.
    """
    document = features.document
    joined = _brought(side_tables(document.joins))
    folders = partitions_of([file.path for file in files], document.partitions)
    for file, values in list(zip(files, folders, strict=True))[:_LOOKED_AT_FIRST]:
        _checked_look(file.path, file.size_bytes, features, values, joined, option)


def save_features(features: FeatureConfig, workflow_folder: str) -> None:
    """Keep the document with the workflow, for later rows, of which none are split off."""
    features.without_split().save(f"{workflow_folder}/{FEATURES_FILE}")


def read_tables(
    files: Sequence[InputFile],
    request: PrepRequest,
    features: FeatureConfig,
    runner: TaskRunner,
    staging: str,
    on_progress: ProgressCallback,
    spelling: int,
) -> ReadInputs:
    """Stage all rows, in input order; arguments as of `read_inputs`, and how texts are made."""
    sides = side_tables(features.document.joins)
    digests, joined = tuple(side.digest for side in sides), _brought(sides)
    folders = partitions_of([file.path for file in files], features.document.partitions)
    looks = [
        (file.path, file.size_bytes, features, values, joined)
        for file, values in zip(files, folders, strict=True)
    ]
    found: list[TableFile] = runner.run("look", _checked_look, looks)
    hint = "Say in the features document what is made of the values: as: text, or as: integer."
    types = same_in_all([(file.path, file.category_types(features)) for file in found], hint)
    hint = "Write the files anew with one of the two."
    shapes = same_in_all([(file.path, file.shapes(features)) for file in found], hint)
    lists = frozenset(name for name, shape in shapes.items() if shape == "lists")
    tasks = [
        TableTask(
            file,
            rows,
            features,
            lists,
            request.skip_bad_lines,
            request.block_bytes,
            f"{staging}/{number:05d}-{place:05d}",
            digests,
            spelling,
        )
        for number, (file, pieces) in enumerate(
            zip(found, _rows_of_tasks(found, request, runner), strict=True)
        )
        for place, rows in enumerate(pieces)
    ]
    sizes = {file.path: file.size_bytes for file in files}
    read = [TaskSize(task.file.path, sizes[task.file.path], task.rows) for task in tasks]
    counter = ReadCounter(bytes_of_tasks(read), on_progress)

    def count(place: int, staged: StagedTable) -> None:
        parts = (*staged.parts, *staged.valid_parts)
        counter.add(place, sum(part.num_rows for part in parts))

    results = runner.run("read", stage_table_rows, [(task,) for task in tasks], count)
    parts: list[Part] = []
    valid: list[Part] = []
    for _, of_file in groupby(zip(tasks, results, strict=True), key=lambda pair: pair[0].file.path):
        ranges = [staged for _, staged in of_file]
        both = (((*r.parts, *r.valid_parts), r.num_left_out) for r in ranges)
        for staged, found_parts in zip(ranges, parts_in_file(both), strict=True):
            parts += found_parts[: len(staged.parts)]
            valid += found_parts[len(staged.parts) :]
    unlabelled = sum(result.unlabelled for result in results)
    found_rows = ReadInputs(tuple(parts), _tally(tasks, results), types, unlabelled=unlabelled)
    num_rows = sum(part.num_rows for part in (*parts, *valid))
    num_ones = sum(result.num_ones for result in results)
    if num_rows and not num_ones and request.saved_workflow is None:
        raise _no_ones(features, found[0], num_rows)
    return _with_split(found_rows, tuple(valid), features)


def _checked_look(
    path: str,
    size_bytes: int,
    features: FeatureConfig,
    folders: Values,
    joined: dict[str, AddedColumn],
    option: str = "--keep",
) -> TableFile:
    target = features.document.target.column if features.unlabeled else None
    file = look_at(path, size_bytes, features.document.format, target)
    file = replace(file, folders=folders, joined=joined)
    file.check(features, option)
    return file


def _brought(sides: Sequence[SideTable]) -> dict[str, AddedColumn]:
    return {name: column for side in sides for name, column in side.columns.items()}


def _rows_of_tasks(
    files: Sequence[TableFile], request: PrepRequest, runner: TaskRunner
) -> list[Sequence[TextRange | Part]]:
    texts = [(InputFile(f.path, f.size_bytes), f.codec) for f in files if not f.is_typed]
    planned = iter(plan_all(texts, request.block_bytes, runner))
    return [
        parts_of_row_groups(file.path, file.row_groups, request.part_rows)
        if file.is_typed
        else next(planned)
        for file in files
    ]


def _tally(tasks: Sequence[TableTask], results: Sequence[StagedTable]) -> BadLineTally:
    total = BadLineTally()
    pairs = zip(tasks, results, strict=True)
    for path, ranges in groupby(pairs, key=lambda pair: pair[0].file.path):
        lines = 0
        for _, staged in ranges:
            total = total.merged(staged.bad_lines.shifted(path, lines))
            lines += staged.num_lines
    return total


def _no_ones(features: FeatureConfig, file: TableFile, num_rows: int) -> DataError:
    """The error for a target that is 0 in all rows, with some of its values."""
    target = features.document.target
    where: dict[str, object] = {"column": target.column}
    if target.column in file.types:
        values, _ = rows_of(file, features.document.format, [target.column], _SHOWN_ROWS)
        distinct = values[target.column].drop_null().unique().to_pylist()
        where["values in its first rows"] = ", ".join(map(repr, distinct[:_SHOWN_VALUES]))
    rule = "" if target.comparison is None else f": target.{target.comparison[0]} fits no row"
    return DataError(
        f"all {num_rows:,} labels are 0{rule}",
        where=where,
        hint="Name a value as the column has it, or another column, in target of the features "
        "document.",
    )


def _with_split(read: ReadInputs, valid: tuple[Part, ...], features: FeatureConfig) -> ReadInputs:
    split = features.document.split
    if split is None:
        return read
    if read.parts and valid:
        return replace(read, valid_parts=valid)
    if not read.parts and not valid:
        return read
    wanted = "validation" if read.parts else "training"
    found = sum(part.num_rows for part in (*read.parts, *valid))
    raise DataError(
        f"no {wanted} rows: split by {split.by} gives all {found:,} rows to the other side",
        where={"column": getattr(split, "column", "")},
        hint="Look at the column's values, and change split in the features document.",
    )
