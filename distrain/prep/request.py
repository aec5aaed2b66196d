"""What to prepare, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from distrain.errors import InputError
from distrain.prep.bad_lines import BadLineTally
from distrain.prep.features.config import FeatureConfig
from distrain.prep.raw_lines import TextLayout
from distrain.prep.updates.column_drift import DriftBounds, Drifted
from distrain.prep.workflow import Workflow
from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.criteo import LABEL
from distrain.schema.schema import Schema
from distrain.storage.urls import path_or_url

BLOCK_BYTES = 64 << 20
ROW_GROUP_ROWS = 65536
# A raw Criteo line takes about this much text.
_BYTES_PER_ROW = 256


@dataclass(frozen=True)
class PrepRequest:
    """What to prepare."""

    # files, folders, globs or URLs with the training rows: raw Criteo text (plain, gzip or zstd) or
    # parquet
    inputs: tuple[str, ...]
    # the folder to make, on a file system that this process and all workers share; or the URL of a
    # prefix in an object store
    out: Path | str
    valid: tuple[str, ...] = ()  # like `inputs`, for validation: transformed, never fitted
    # instead, take this share of the rows, the last, for validation
    valid_fraction: float | None = None
    valid_rows: int | None = None  # instead, take so many rows, the last, for validation
    workflow: Workflow | None = None  # what to fit; `criteo_workflow()` if `None`
    # what a table's columns are, and so what to fit; instead of `workflow`
    features: FeatureConfig | None = None
    # a folder, or URL, of a fitted workflow to use instead; nothing is fitted
    saved_workflow: Path | str | None = None
    # Like `inputs`, for histories: rows whose events come before those of the others, and which are
    # neither fitted nor written. With a saved workflow that has a history it must be given; `()`
    # says that nothing happened before.
    log: tuple[str, ...] | None = None
    # Whether the saved workflow's vocabularies learn the training rows: old ids stay, new ones
    # follow. What else was fitted stays as it is.
    update: bool = False
    # Of how many values without an id a column's counts are kept beside its vocabulary, so that an
    # update adds to them; 0 keeps none. `None` is 0 for a fit, and for an update what the saved
    # workflow says.
    keep_counts: int | None = None
    unlabeled: bool = False  # whether the rows are without a target, which is not looked for then
    # The input's columns that are written beside the features, as they are; one that has the name
    # of a feature as `raw_NAME`. With these, or unlabeled, `file` and `row_number` say where each
    # row comes from.
    keep: tuple[str, ...] = ()
    layout: TextLayout = field(default_factory=TextLayout)  # how text is laid out
    # leave bad lines out and count them, rather than stop at the first
    skip_bad_lines: bool = False
    max_bad: float = 0.01  # the greatest share of lines that may be left out so; more are an error
    row_group_rows: int = ROW_GROUP_ROWS  # rows per row group of the output
    block_bytes: int = BLOCK_BYTES  # text per task
    embedding_dim: int | None = None  # written to the schema of each categorical column
    overwrite: bool = False  # whether `out` may exist already, and is then replaced
    # with a saved workflow, what counts as drifted
    drift: DriftBounds = field(default_factory=DriftBounds)
    # where rows and counts lie meanwhile: a folder that all see, or a URL; `None` is beside what is
    # written to `out`
    staging: Path | str | None = None
    # memory that a worker process may take, all threads together; `None` takes 320 MiB a thread,
    # but no more than 0.6 of the workers' limit
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(map(str, self.inputs)))
        object.__setattr__(self, "valid", tuple(map(str, self.valid)))
        if self.log is not None:
            object.__setattr__(self, "log", tuple(map(str, self.log)))
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
            "name one of valid, valid_fraction and valid_rows, not more": sum(splits) > 1,
            f"valid_fraction {fraction} is not between 0 and 1": fraction is not None
            and not 0 < fraction < 1,
            f"valid_rows {self.valid_rows} is below 1": self.valid_rows is not None
            and self.valid_rows < 1,
            "name a workflow to fit or a saved one, not both": self.workflow is not None
            and self.saved_workflow is not None,
            "update needs a saved workflow": self.update and self.saved_workflow is None,
            "unlabeled rows need a saved workflow, and teach it nothing": self.unlabeled
            and (self.saved_workflow is None or self.update),
            "keep_counts is for a fit or an update": self.keep_counts is not None
            and self.saved_workflow is not None
            and not self.update,
            f"keep_counts {self.keep_counts} is below 0": (self.keep_counts or 0) < 0,
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
    def is_traced(self) -> bool:
        return self.unlabeled or bool(self.keep)

    @property
    def part_rows(self) -> int:
        """About how many rows of parquet one task handles: what a block of text would hold."""
        return max(1, self.block_bytes // _BYTES_PER_ROW)


@dataclass(frozen=True)
class SplitReport:
    num_rows: int  # rows written
    num_files: int  # files written
    num_ones: int | None  # rows with the label 1; `None` without labels
    missing_share: dict[str, float]  # by column, the share of the input's values that were missing
    # by categorical column, the share without an id of those not missing; of lists, of their items
    unknown_share: dict[str, float]
    # by column that Normalize ends, how far its mean is from the fitted one, in fitted standard
    # deviations
    mean_shift: dict[str, float]
    # continuous columns in whose range, from the least to the greatest value, float32 has few
    # numbers
    coarse: dict[str, tuple[float, float]]
    sources: tuple[str, ...] = ()  # the input file of the rows of each, in the order of their names


@dataclass(frozen=True)
class PrepResult:
    out: Path | str
    train: SplitReport
    valid: SplitReport | None  # `out/valid`, or `None` without validation rows
    bad_lines: BadLineTally  # the lines that were left out
    cardinalities: dict[str, int]  # by categorical column
    inputs: tuple[str, ...]  # the training files
    valid_inputs: tuple[str, ...]  # the validation files, if they were named
    seconds: dict[str, float]  # by phase: `read`, `fit`, `write`, `total`
    # what is not as in the rows that the workflow was fitted on: of validation rows, and of all
    # with a saved workflow
    drifted: tuple[Drifted, ...] = ()
    # with `update`, how many ids are new, by categorical column
    new_ids: dict[str, int] | None = None
    # of how many values without an id the counts are kept, by categorical column
    kept_counts: dict[str, int] = field(default_factory=dict)
    kept_bytes: int = 0  # the size of the files with these
    # with `update`, inputs of the same name that the workflow had learnt already, and whose counts
    # it has twice now
    learnt_before: tuple[str, ...] = ()
    unlabelled: int = 0  # how many rows were left out since their target is missing
    # the input's columns that rows keep, by the name that they are written under
    kept: dict[str, str] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return self.train.num_rows + (self.valid.num_rows if self.valid else 0)

    def to_json(self) -> dict[str, Any]:
        splits = {"train": self.train, "valid": self.valid}
        written = {name: split for name, split in splits.items() if split}
        learnt = {} if self.new_ids is None else {"new_ids": self.new_ids}
        kept = {"values": self.kept_counts, "bytes": self.kept_bytes}
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
            "drifted": [asdict(one) for one in self.drifted],
            "cardinalities": self.cardinalities,
            **learnt,
            **({"kept_counts": kept} if self.kept_counts else {}),
            "seconds": self.seconds,
        }


def output_schema(
    workflow: Workflow,
    cardinalities: dict[str, int],
    embedding_dim: int | None = None,
    list_lengths: Mapping[str, tuple[int, int]] | None = None,
    tags: Mapping[str, Sequence[str]] | None = None,
) -> Schema:
    """Return the schema of what `workflow` writes: label, then its columns in order.

    Args:
        cardinalities: Cardinality of each categorical column.
        embedding_dim: Width of their embeddings; `None` leaves it open.
        list_lengths: Least and greatest length, by column that holds lists.
        tags: What columns are besides categorical or continuous: `user_id`, `item`, ...
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
