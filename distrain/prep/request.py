"""The request of a preparation, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distrain.errors import InputError
from distrain.prep.bad_lines import BadLineTally
from distrain.prep.features.config import FeatureConfig
from distrain.prep.raw_lines import TextLayout
from distrain.prep.workflow import Workflow
from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.criteo import LABEL
from distrain.schema.schema import Schema
from distrain.storage.urls import path_or_url

BLOCK_BYTES = 64 << 20
ROW_GROUP_ROWS = 65536
# The approximate size of a raw Criteo line.
_BYTES_PER_ROW = 256


@dataclass(frozen=True)
class PrepRequest:
    """A preparation: its inputs, its output, and the workflow to fit or to use.

    Raises:
        InputError: Fields are missing, invalid or exclude each other; the message lists all
            mistakes.
    """

    # files, folders, globs or URLs with the training rows: raw Criteo text (plain, gzip or zstd) or
    # parquet; with `features`, also other text
    inputs: tuple[str, ...]
    # the folder to create, on a file system that this process and all workers share; or the URL of
    # a prefix in an object store
    out: Path | str
    valid: tuple[str, ...] = ()  # like `inputs`, for validation; nothing is fitted on these rows
    test: tuple[str, ...] = ()  # like `inputs`, for a final evaluation only
    # alternatively, use this share of the rows, the last ones, for validation
    valid_fraction: float | None = None
    valid_rows: int | None = None  # alternatively, use this number of last rows for validation
    workflow: Workflow | None = None  # the workflow to fit; by default `criteo_workflow()`
    # the description of a table's columns, which determines the workflow; instead of `workflow`
    features: FeatureConfig | None = None
    # a folder, or URL, of a fitted workflow to use instead; nothing is fitted unless `update`
    saved_workflow: Path | str | None = None
    # Like `inputs`, for histories: rows with earlier events, which are neither fitted nor written.
    # It is required with a saved workflow that has a history; `()` for no earlier events.
    log: tuple[str, ...] | None = None
    # Whether to add the training rows' values to the saved workflow's vocabularies. Known values
    # keep their ids, new values get the next ids. Nothing else is fitted again.
    update: bool = False
    unlabeled: bool = False  # whether the rows have no target; if they have, it is not read
    # The input's columns to write besides the features, unchanged; a column with the name of a
    # feature becomes `raw_NAME`. If `keep` or `unlabeled` is set, the columns `file` and
    # `row_number` give the origin of each row.
    keep: tuple[str, ...] = ()
    layout: TextLayout = field(default_factory=TextLayout)  # the layout of text
    # drop and count bad lines, rather than stop at the first
    skip_bad_lines: bool = False
    max_bad: float = 0.01  # the largest share of lines that may be dropped; more are an error
    row_group_rows: int = ROW_GROUP_ROWS  # rows per row group of the output
    block_bytes: int = BLOCK_BYTES  # bytes of text per task
    embedding_dim: int | None = None  # written to the schema of each categorical column
    overwrite: bool = False  # whether `out` may exist already, and is then replaced
    # the folder or URL of temporary rows and counts, which all workers must see; `None`: inside the
    # unfinished output
    staging: Path | str | None = None
    # memory limit of a worker process, all threads together; `None` means 320 MiB a thread, but at
    # most 0.6 of the workers' limit
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(map(str, self.inputs)))
        object.__setattr__(self, "valid", tuple(map(str, self.valid)))
        if self.log is not None:
            object.__setattr__(self, "log", tuple(map(str, self.log)))
        object.__setattr__(self, "test", tuple(map(str, self.test)))
        for name in ("out", "saved_workflow", "staging"):
            place = getattr(self, name)
            if place is not None:
                object.__setattr__(self, name, path_or_url(place))
        mistakes = list(self._mistakes())
        if mistakes:
            raise InputError("; ".join(mistakes), hint="See `distrain prep --help`.")

    def _mistakes(self) -> list[str]:
        splits = (bool(self.valid), self.valid_fraction is not None, self.valid_rows is not None)
        delimiter = self.layout.delimiter
        fraction = self.valid_fraction
        checks = {
            "no input was named": not self.inputs,
            "give only one of valid, valid_fraction and valid_rows": sum(splits) > 1,
            f"valid_fraction {fraction} is not between 0 and 1": fraction is not None
            and not 0 < fraction < 1,
            f"valid_rows {self.valid_rows} is below 1": self.valid_rows is not None
            and self.valid_rows < 1,
            "name a workflow to fit or a saved one, not both": self.workflow is not None
            and self.saved_workflow is not None,
            "update needs a saved workflow": self.update and self.saved_workflow is None,
            "unlabeled rows need a saved workflow, and cannot update it": self.unlabeled
            and (self.saved_workflow is None or self.update),
            "test rows are named, and the features document selects them": bool(self.test)
            and self.features is not None
            and self.features.document.test is not None,
            "name a workflow or features, not both": self.workflow is not None
            and self.features is not None,
            "the features document has a split: leave out valid, valid_fraction and valid_rows": (
                self.features is not None
                and self.features.document.split is not None
                and any(splits)
            ),
            f"delimiter {delimiter!r} is not one ASCII character other than letters, digits, "
            "blanks and '-'": len(delimiter) != 1
            or not delimiter.isascii()
            or delimiter.isalnum()
            or delimiter in " -\r\n",
            f"max_bad {self.max_bad} is not between 0 and 1": not 0 <= self.max_bad <= 1,
            f"row_group_rows {self.row_group_rows} is below 1": self.row_group_rows < 1,
            f"block_bytes {self.block_bytes} is below 1": self.block_bytes < 1,
            f"embedding_dim {self.embedding_dim} is below 1": self.embedding_dim is not None
            and self.embedding_dim < 1,
        }
        return [mistake for mistake, is_made in checks.items() if is_made]

    @property
    def part_rows(self) -> int:
        """The number of parquet rows per task: about the number of lines in a block of text."""
        return max(1, self.block_bytes // _BYTES_PER_ROW)


@dataclass(frozen=True)
class SplitReport:
    """Facts about the written rows of one folder, `train` or `valid`."""

    num_rows: int  # rows written
    num_files: int  # files written
    num_ones: int | None  # rows with the label 1; `None` without binary labels
    missing_share: dict[str, float]  # by column, the share of the input's values that were missing
    # by categorical column, the share of non-missing values (or items of lists) without an id
    unknown_share: dict[str, float]
    # by continuous column: minimum and maximum, if float32 has few distinct values between them
    coarse: dict[str, tuple[float, float]]
    sources: tuple[str, ...] = ()  # the input file of each written file, in the order of names


@dataclass(frozen=True)
class PrepResult:
    """The result of a preparation."""

    out: Path | str
    train: SplitReport
    valid: SplitReport | None  # `out/valid`, or `None` without validation rows
    bad_lines: BadLineTally  # the dropped lines
    cardinalities: dict[str, int]  # by categorical column
    inputs: tuple[str, ...]  # the training files
    valid_inputs: tuple[str, ...]  # the validation files, if named
    seconds: dict[str, float]  # by phase: `read`, `fit`, `write`, `total`
    # with `update`, the number of new ids, by categorical column
    new_ids: dict[str, int] | None = None
    # with `update`, the inputs at the path of a file on which the workflow was fitted or updated
    # before: their values are now counted twice
    learnt_before: tuple[str, ...] = ()
    unlabelled: int = 0  # number of rows dropped because their target is missing
    # the input's columns that rows keep, by their names in the output
    kept: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # see `warnings_of`
    test: SplitReport | None = None  # `out/test`, or `None` without test rows

    @property
    def num_rows(self) -> int:
        """The number of rows written, for training and validation."""
        return sum(side.num_rows for side in (self.train, self.valid, self.test) if side)

    def to_json(self) -> dict[str, Any]:
        """Return the content of `prep.json`."""
        splits = {"train": self.train, "valid": self.valid, "test": self.test}
        written = {name: split for name, split in splits.items() if split}
        learnt = {} if self.new_ids is None else {"new_ids": self.new_ids}
        return {
            "version": 1,
            "inputs": list(self.inputs),
            "valid_inputs": list(self.valid_inputs),
            "rows": {
                "in": self.num_rows + self.bad_lines.count + self.unlabelled,
                **{name: split.num_rows for name, split in written.items()},
            },
            "rows_with_label_1": {
                name: split.num_ones
                for name, split in written.items()
                if split.num_ones is not None
            },
            "rows_without_label": self.unlabelled,
            "files": {name: split.num_files for name, split in written.items()},
            "bad_lines": {
                "count": self.bad_lines.count,
                "by_kind": self.bad_lines.by_kind,
                "examples": [
                    {"file": e.file, "line": e.line, "problem": e.problem, "content": e.text}
                    for e in self.bad_lines.examples
                ],
            },
            "missing_share": {name: split.missing_share for name, split in written.items()},
            "unknown_share": {name: split.unknown_share for name, split in written.items()},
            "cardinalities": self.cardinalities,
            **learnt,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
        }


def output_schema(
    workflow: Workflow,
    cardinalities: dict[str, int],
    embedding_dim: int | None = None,
    list_lengths: Mapping[str, tuple[int, int]] | None = None,
    tags: Mapping[str, Sequence[str]] | None = None,
) -> Schema:
    """Return the schema of the output of `workflow`.

    Its columns are the label, the workflow's columns in order, and those of the history.

    Args:
        cardinalities: Cardinality of each categorical column.
        embedding_dim: Width of the categorical columns' embeddings; `None` leaves it open.
        list_lengths: Minimum and maximum length, by list column.
        tags: Further tags of columns: `user_id`, `item`, ...
    """
    columns = [ColumnSchema(LABEL, "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION))]
    domains = workflow.domains
    for name in workflow.columns:
        column = ColumnSchema(name, "float32", (Tags.CONTINUOUS,))
        if name in workflow.categorical:
            cardinality = cardinalities[name]
            column = ColumnSchema(name, "int32", (Tags.CATEGORICAL,), cardinality, embedding_dim)
        if domains.get(name, name) != name:
            column = replace(column, properties={"domain": domains[name]})
        if list_lengths and name in list_lengths:
            least, greatest = list_lengths[name]
            column = replace(
                column,
                is_list=True,
                is_ragged=least != greatest or not greatest,
                value_count=(least, greatest or None),
            )
        columns.append(replace(column, tags=(*column.tags, *(tags or {}).get(name, ()))))
    if workflow.history is not None:
        columns += workflow.history.schema_of({column.name: column for column in columns})
    return Schema(tuple(columns))
