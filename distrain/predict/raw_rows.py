"""Prepares raw rows for a saved model, with the workflow that prepared its training data."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.errors import DataError, DistrainError, InputError
from distrain.formatting import command_line
from distrain.jobs.spec.data import READING
from distrain.loader.dataset import Dataset
from distrain.models.heads.targets import Target
from distrain.models.saved_model import SavedModel
from distrain.predict.prepared_rows import open_prepared
from distrain.prep.features.file_format import PARQUET, detect_format
from distrain.schema.column import Tags
from distrain.schema.criteo import LABEL
from distrain.schema.files import find_schema_next_to
from distrain.schema.folders import folder_values
from distrain.schema.schema import Schema
from distrain.storage.inputs import PARQUET_SUFFIXES, InputFile, list_inputs, open_input
from distrain.storage.outputs import scratch_folder
from distrain.storage.retrying import RETRY_S
from distrain.storage.urls import is_remote
from distrain.train.data.vocabularies import WORKFLOW, Vocabularies, check_meaning
from distrain.workers.open_cluster import ClusterRequest, open_cluster

# Modules that prepare raw rows are imported where they are used: prepared rows need none of them.
_INT64 = 2**63

if TYPE_CHECKING:
    from distrain.prep.features.config import FeatureConfig
    from distrain.prep.progress import ProgressCallback
    from distrain.prep.request import PrepRequest, PrepResult

TRAINED_ON = "the model trained on these rows, so its metrics are too good; evaluate other rows"


@dataclass(frozen=True)
class RawOptions:
    """Whether rows are raw, and how to treat bad lines of raw text."""

    is_raw: bool | None = None  # `None` decides by the first file
    # drop and count bad lines, rather than stop at the first
    skip_bad_lines: bool = False
    max_bad: float = 0.01  # the largest share of lines that may be dropped


@dataclass(frozen=True)
class RawRows:
    """Files of raw rows, and the workflow that prepares the rows."""

    files: tuple[InputFile, ...]
    workflow: str  # the folder of the fitted workflow
    options: RawOptions
    keep: tuple[str, ...] = ()  # the input's columns that rows keep
    labeled: bool = False  # whether to read the target

    def check(self, option: str) -> None:
        """Check that the workflow can prepare the rows; needs no cluster.

        Reads the footers or first lines of the first four files, and all side tables.

        Raises `InputError` if the workflow makes histories, which need events that came before
        these rows, and `DataError` if one of these files does not fit the workflow's features
        document. `option` is the command's option for `keep`, which errors name.
        """
        from distrain.prep.features.file_checks import check_tables
        from distrain.prep.reading import with_features
        from distrain.prep.transforming import raw_tables

        history = raw_tables(self.workflow, self.labeled).workflow.history
        if history is not None:
            words = ("--workflow", self.workflow, "--earlier-rows", "FILE", "--out", "DIR")
            prep = command_line("prep", "RAW", *words)
            raise InputError(
                "histories need the events that came before these rows",
                where={"by": history.by, "order": history.order},
                hint=f"Prepare the rows with `{prep}` (`--earlier-rows none` if there are "
                "no earlier events), and name DIR/train instead. Rows without a target also need "
                "--unlabeled.",
            )
        features = with_features(self._request("unused")).features
        if features is not None:
            check_tables(self.files, features, option)

    @contextmanager
    def prepared(
        self, client: Any, place: str | Path, on_progress: ProgressCallback | None = None
    ) -> Iterator[PrepResult]:
        """Prepare the rows in a scratch folder in `place`, and yield the result.

        The folder is removed at the end of the context. The client's workers must be able to write
        to `place`. If `client` is `None`, threads of this process prepare the rows.
        """
        from distrain.prep.preparation import prepare

        here = ClusterRequest(in_process=True)
        opened = open_cluster(here) if client is None else nullcontext(client)
        with scratch_folder(place) as scratch, opened as client:
            yield prepare(self._request(f"{scratch}/rows"), client, on_progress)

    def _request(self, out: str) -> PrepRequest:
        from distrain.prep.request import PrepRequest

        return PrepRequest(
            tuple(file.path for file in self.files),
            out,
            saved_workflow=self.workflow,
            unlabeled=not self.labeled,
            keep=self.keep,
            skip_bad_lines=self.options.skip_bad_lines,
            max_bad=self.options.max_bad,
        )


@contextmanager
def rows_for_model(
    model_dir: str | Path,
    saved: SavedModel,
    inputs: Sequence[str],
    options: RawOptions = RawOptions(),
    check_raw: Callable[[], object] = lambda: None,
    on_prepare: ProgressCallback | None = None,
    group: str | None = None,
    *,
    labeled: bool = True,
) -> Iterator[tuple[Dataset, str | None, PrepResult | None]]:
    """Yield rows as the model reads them, such as rows to evaluate it on; raw rows are prepared.

    Raw rows are prepared by threads of this process, in a scratch folder that is removed at the end
    of the context.

    Args:
        check_raw: Called before raw rows are prepared; raises an error to refuse them.
        group: A column of the input that the prepared rows must keep, by which the caller groups
            the rows.
        labeled: Whether the rows must have their targets; otherwise targets are not read.

    Yields:
        The rows, the name of `group` in them (`None` without `group`), and the result of preparing
        them (`None` if they were prepared already).

    Raises:
        DataError: The rows cannot be used, or were prepared with another workflow than the model's.
        InputError: As in `files_to_score` and `RawRows.check`.
        Unavailable: The storage does not answer.
    """
    files, are_raw = files_to_score(inputs, saved, options.is_raw)
    if not are_raw:
        with taken_for_prepared(options, saved):
            dataset = open_prepared(saved, [file.path for file in files], need_label=labeled)
        check_same_workflow(model_dir, saved, dataset.table.compact.files)
        yield dataset, group, None
        return
    keep = () if group is None else (group,)
    raw = RawRows(tuple(files), workflow_for(model_dir, saved), options, keep, labeled)
    raw.check("--group")
    place = tempfile.gettempdir()
    check_raw()
    with raw.prepared(None, place, on_prepare) as result:
        dataset = open_prepared(saved, f"{result.out}/train", need_label=labeled)
        yield dataset, next(iter(result.kept), None), result


def files_to_score(
    inputs: Sequence[str], saved: SavedModel, is_raw: bool | None
) -> tuple[list[InputFile], bool]:
    """Return the files that match the patterns `inputs`, and whether their rows are raw.

    `is_raw` is the caller's answer. If it is `None`, the first file decides: it is prepared if it
    is a local parquet file with a schema next to it, or if it is parquet and has the model's
    columns as `distrain prep` writes them (int32 ids and float32 numbers, none nullable). If the
    model's workflow is unknown, the files must be prepared.

    Raises:
        InputError: The first file could be raw or prepared: its columns have the names and types of
            prepared rows, but some are nullable.
        DataError: A pattern matches no file, or a file is empty.
        Unavailable: The storage does not answer.
    """
    if is_raw is None and not Vocabularies.from_json(saved.about).workflow:
        is_raw = False  # no known workflow could prepare them
    if is_raw:
        return list_inputs(inputs), True
    try:
        files = list_inputs(inputs, suffixes=PARQUET_SUFFIXES)
    except DataError:  # a folder without parquet
        if is_raw is False:
            raise
        return list_inputs(inputs), True
    return files, _looks_raw(files[0].path, saved) if is_raw is None else False


def _looks_raw(path: str, saved: SavedModel) -> bool:
    if f"/{WORKFLOW}/categories/" in path:
        return False  # the root folder of a `prep` output; the reader raises the error
    if detect_format(path) != PARQUET:
        return True
    if find_schema_next_to(path) is not None:
        return False
    with open_input(path, retry_s=RETRY_S) as handle:
        try:
            arrow_schema = pq.ParquetFile(handle).schema_arrow
        except pa.ArrowException:
            return False  # damaged; the reader raises the error
    schema = saved.schema
    if saved.about.get(READING, {}).get("hive"):
        schema = schema.remove({key for key, _ in folder_values(path)} & {*schema.names})
    return _columns_are_raw(arrow_schema, schema, path)


@contextmanager
def taken_for_prepared(options: RawOptions, saved: SavedModel) -> Iterator[None]:
    """In this context, add to a `DataError` the hint that the rows may be raw.

    Nothing is added if `options.is_raw` is set, or if the model's workflow is unknown.
    """
    try:
        yield
    except DataError as error:
        if options.is_raw is None and Vocabularies.from_json(saved.about).workflow:
            hint = "If the rows are raw, pass --raw (in Python: raw=True)."
            error.hint = f"{error.hint or ''} {hint}".lstrip()
        raise


def table_is_raw(table: pa.Table, saved: SavedModel, is_raw: bool | None) -> bool:
    """Return True if rows in memory are raw.

    `is_raw` is the caller's answer. If it is `None`, the names and types of the columns decide. If
    the model's workflow is unknown, the rows must be prepared. Raises `InputError` if the rows
    could be raw or prepared.
    """
    if is_raw is None and Vocabularies.from_json(saved.about).workflow:
        return _columns_are_raw(table.schema, saved.schema, "rows in memory")
    return bool(is_raw)


def _columns_are_raw(arrow_schema: pa.Schema, schema: Schema, path: str) -> bool:
    features = schema.remove_by_tag(Tags.TARGET, Tags.WEIGHT, Tags.TASK_WEIGHT)
    for column in features.columns:
        wanted = pa.int32() if column.name in features.categorical.names else pa.float32()
        if (
            column.name not in arrow_schema.names
            or _of_item(arrow_schema.field(column.name).type) != wanted
        ):
            return True
    if not any(arrow_schema.field(column.name).nullable for column in features.columns):
        return False
    raise InputError(
        "the rows could be raw or prepared: their columns have the names and types of both",
        where={"file": path},
        hint="Pass --raw or --prepared (in Python: raw=True or raw=False).",
    )


def _of_item(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_list(dtype) else dtype


def check_same_workflow(model_dir: str | Path, saved: SavedModel, files: Sequence[str]) -> None:
    """Raise `DataError` if an id or a number has another meaning in files than in the model's data.

    `files` are prepared; files without a workflow next to them are accepted.
    """
    known = Vocabularies.from_json(saved.about)
    if (kept := _own_workflow(model_dir)) is not None:
        known = known.kept_in(kept)
    check_meaning(known, f"the model {model_dir}", files, saved.schema)


def features_of(model_dir: str | Path, saved: SavedModel) -> FeatureConfig | None:
    """Return the features document of the model's data.

    Returns `None` if there is none, or if the workflow that contains it is missing or has changed.
    """
    from distrain.prep.reading import saved_features

    with suppress(DataError):
        return saved_features(workflow_for(model_dir, saved))
    return None


def sources_of(model_dir: str | Path, saved: SavedModel) -> dict[str, tuple[str, ...]]:
    """Return the raw columns of each feature, by the feature's name; empty if they are unknown."""
    features = features_of(model_dir, saved)
    columns = {} if features is None else features.document.columns
    return {name: column.sources(name) for name, column in columns.items()}


def values_of_classes(features: FeatureConfig | None, target: Target) -> Sequence[Any] | None:
    """Return the values of a target's classes, in order; `None` if only their numbers are known.

    `features` is the features document of the model's data. A binary target that is 1 for the value
    `yes` and 0 for all other values has the classes `not yes` and `yes`.
    """
    targets = {} if features is None else features.document.targets
    prepared = targets.get(target.column or LABEL)
    if prepared is None:
        return None
    if prepared.comparison is not None and target.kind == "binary":
        key, compared = prepared.comparison
        one = compared if key == "equals" else f"{key.replace('_', ' ')} {compared}"
        return (f"not {one}" if prepared.otherwise is None else prepared.otherwise, one)
    values = prepared.classes
    return values if isinstance(values, tuple) and len(values) == target.classes else None


def columns_of_classes(
    model_dir: str | Path, saved: SavedModel, features: FeatureConfig | None = None
) -> dict[str, pa.Array]:
    """Return the values of the classes of each multiclass target whose values are known, by target.

    Values of several types, and integers beyond 64 bits with a sign, are returned as texts.
    `features` is the features document of the model's data; `None` reads it if it is needed and can
    be read: prepared rows are scored without it.
    """
    targets = [one for one in saved.model.task.targets if one.kind == "multiclass"]
    if features is None and targets:
        with suppress(DistrainError):
            features = features_of(model_dir, saved)
    found = {}
    for target in targets:
        if (values := values_of_classes(features, target)) is not None:
            is_of_one_type = are_of_one_type(values)
            found[target.name] = pa.array(values if is_of_one_type else [str(v) for v in values])
    return found


def are_of_one_type(values: Sequence[Any]) -> bool:
    """Return True if an array of Arrow or NumPy can hold values of classes as they are."""
    kinds = set(map(type, values))
    return len(kinds) == 1 and (kinds != {int} or -_INT64 <= min(values) <= max(values) < _INT64)


def has_trained_on(
    model_dir: str | Path, saved: SavedModel, rows: pa.Table | Sequence[str]
) -> bool:
    """Return True if the model was trained on raw rows: files, or a table from `table_of`.

    Validation rows count if the model was refitted (`train.refit`). False if the model has no
    workflow, or one without a record of its input files.
    """
    from distrain.prep.transforming import raw_tables
    from distrain.prep.updates.raw_files import holds_files, holds_rows

    parts = ["train", *(["valid"] if "refitted_on" in saved.about else [])]
    with suppress(DataError):
        workflow = raw_tables(workflow_for(model_dir, saved)).workflow
        found = holds_rows if isinstance(rows, pa.Table) else holds_files
        return found(workflow, rows, parts)
    return False


def workflow_for(model_dir: str | Path, saved: SavedModel) -> str:
    """Return the workflow's folder: the model's own copy, or the workflow that prepared its data.

    Raises `DataError` if there is no copy, and the data's workflow is missing or has changed, or
    the data was prepared without one.
    """
    if (kept := _own_workflow(model_dir)) is not None:
        return kept
    known = Vocabularies.from_json(saved.about)
    if known.workflow and all(file.is_unchanged for file in known.files.values()):
        return known.workflow
    raise DataError(
        "raw rows need the workflow that prepared the model's data, but it is missing"
        if known.workflow
        else "raw rows need a workflow, but the model was trained on data without one",
        where={"model": model_dir, "workflow": known.workflow or "none"},
        hint="Restore it, or prepare the rows like the training data and score the result.",
    )


def _own_workflow(model_dir: str | Path) -> str | None:
    """Return the folder of a local model's own copy of the workflow; `None` if it has none."""
    kept = os.path.join(model_dir, WORKFLOW)
    return kept if not is_remote(model_dir) and os.path.isdir(kept) else None
