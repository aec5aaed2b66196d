"""Scores and evaluates rows in memory."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from distrain.errors import DataError, DistrainError
from distrain.jobs.target_names import own_name
from distrain.loader.batch import Batch, Ragged
from distrain.loader.filling.batch_memory import BatchLayout
from distrain.loader.filling.list_columns import cut_lists
from distrain.metrics.evaluation import Evaluation
from distrain.models.saved_model import SavedModel
from distrain.predict.evaluation import evaluate_saved, has_seen
from distrain.predict.importance import Importance, column_importance
from distrain.predict.load_model import open_model
from distrain.predict.logits import ScorerInProcess
from distrain.predict.prediction import PredictRequest, check_kept, check_request, predict
from distrain.predict.prepared_rows import open_prepared
from distrain.predict.raw_rows import (
    TRAINED_ON,
    RawOptions,
    columns_of_classes,
    has_trained_on,
    rows_for_model,
    sources_of,
    table_is_raw,
    workflow_for,
)
from distrain.predict.score_columns import score_columns, side_by_side
from distrain.predict.score_file import ROWS_AT_ONCE, model_for_worker, score_file
from distrain.prep.features.table_file import check_named
from distrain.prep.parts import FILE, ROW_NUMBER
from distrain.prep.rows_in_memory import table_of
from distrain.prep.transforming import raw_tables
from distrain.prep.vocabulary import one_array
from distrain.storage.inputs import list_inputs

log = logging.getLogger("distrain")

_GIVEN = "distrain-rows"
"""The name of rows in memory where a file's name is needed; errors replace it."""

_AT_ONCE = 65536
_HINTS_OF_ROWS = {
    "Correct the file, or leave it out. A workflow needs files": "The model's workflow needs rows",
    "no rows in 1 file": "no rows",
    "Their writer wrote no rows; check its input and its filters.": "Check the rows given.",
    ", or leave the file out": "",
    "Check the files.": "Check the rows given.",
}


def score_rows(
    model_dir: Path | str,
    rows: Any,
    *,
    keep: Sequence[str] = (),
    raw: RawOptions = RawOptions(),  # noqa: B008
) -> pa.Table:
    """Return the scores of rows: the table that `predict` writes, without `file` if in memory.

    Rows are scored in this process. The model and its vocabularies are cached between calls.

    Args:
        rows: A table in memory (see `table_of`), or files as in `PredictRequest.inputs`.
        keep: As in `PredictRequest`.
        raw: As in `PredictRequest`.

    Raises:
        DataError: The rows cannot be used.
        InputError: The rows could be raw or prepared, and `raw` does not say which; or they are
            raw, and the model's workflow makes histories of earlier events.
    """
    if (files := _named(rows)) is not None:
        return _score_files(model_dir, files, keep, raw)
    saved, on = model_for_worker(str(model_dir), "auto")
    if isinstance(rows, list) and not rows:
        none = _no_scores(saved, on, keep, columns_of_classes(model_dir, saved))
        return pa.table({ROW_NUMBER: pa.array([], pa.int64())} | none)
    table = table_of(rows)
    if not table_is_raw(table, saved, raw.is_raw):
        return _score_prepared(model_dir, table, keep)
    tables = raw_tables(workflow_for(model_dir, saved), labeled=False)
    if tables.needs_other_rows:
        with _file_of(table) as file:
            return _score_files(model_dir, (file,), keep, raw).drop_columns([FILE])
    classes, pieces = columns_of_classes(model_dir, saved, tables.features), []
    check_kept(keep, saved, is_raw=True, with_values=classes)
    with _errors_name_rows(_GIVEN):
        check_named("--keep", keep, table.column_names, _GIVEN)
        for first in range(0, max(1, table.num_rows), _AT_ONCE):
            with _rows_from(first):
                made = tables.of_rows(table.slice(first, _AT_ONCE), _GIVEN)
            pieces.append(pa.table(scores_of_prepared(saved, on, made, classes)))
    columns: dict[str, Any] = {ROW_NUMBER: np.arange(table.num_rows)}
    columns |= {name: table[name] for name in keep}
    scores = pa.concat_tables(pieces)
    return pa.table(columns | {name: scores[name] for name in scores.column_names})


def evaluate_rows(
    model_dir: Path | str,
    rows: Any,
    *,
    raw: RawOptions = RawOptions(),  # noqa: B008
) -> Evaluation:
    """Return the metrics of labelled rows; arguments as in `score_rows`.

    Raises the errors of `score_rows`, and `ModelError` if a logit is not finite.
    """
    with _labelled(model_dir, rows, raw) as scorer:
        saved, given = scorer.saved, _named(rows)
        files = None if given is None else [file.path for file in list_inputs(given)]
        known = table_of(rows) if files is None else files
        if has_trained_on(model_dir, saved, known) or has_seen(saved, scorer.dataset):
            log.warning(TRAINED_ON)
        kinds = [(target.name, target.kind) for target in scorer.saved.model.task.targets]
        return Evaluation.of(evaluate_saved(scorer), kinds, own_name(Path(model_dir)))


def importance_of_rows(model_dir: Path | str, rows: Any, seed: int) -> Importance:
    """Return the permutation importance of each column in labelled rows (`column_importance`).

    `rows` are labelled, and as in `score_rows`, whose errors are raised here, too.
    """
    with _labelled(model_dir, rows, RawOptions()) as scorer:
        sources = sources_of(model_dir, scorer.saved)
        return column_importance(scorer, evaluate_saved(scorer), sources, seed)


@contextmanager
def _labelled(model_dir: Path | str, rows: Any, raw: RawOptions) -> Iterator[ScorerInProcess]:
    """Yield a scorer of labelled rows, which are in memory or in files.

    Rows in memory are written to a temporary file, which is removed at the end of the context.
    """
    files, saved, tables = _named(rows), open_model(model_dir), None
    with ExitStack() as stack:
        if files is None:
            table = table_of(rows)
            if table_is_raw(table, saved, raw.is_raw):
                tables = raw_tables(workflow_for(model_dir, saved))
            if tables is not None and not tables.needs_other_rows:
                with _errors_name_rows(_GIVEN):
                    made = tables.of_rows(table, _GIVEN)
                file = stack.enter_context(_file_of(made))
                yield ScorerInProcess(saved, open_prepared(saved, file, need_label=True))
                return
            files = (stack.enter_context(_file_of(table)),)
        dataset, *_ = stack.enter_context(rows_for_model(model_dir, saved, files, raw))
        yield ScorerInProcess(saved, dataset)


def _score_files(
    model_dir: Path | str, inputs: tuple[str, ...], keep: Sequence[str], raw: RawOptions
) -> pa.Table:
    with TemporaryDirectory(prefix="distrain-scores-") as folder:
        out = Path(folder) / "scores"
        request = PredictRequest(model_dir, inputs, out, tuple(keep), raw=raw)
        result = predict(request, client=None)
        tables = [pq.read_table(out / name) for name in result.names]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"a kept column has types in these files that no column can hold: {error}",
            where={"files": ", ".join(inputs[:3]), "kept": ", ".join(keep)},
            hint="Predict one file at a time, or keep other columns.",
        ) from None


def _score_prepared(model_dir: Path | str, table: pa.Table, keep: Sequence[str]) -> pa.Table:
    with _file_of(table) as file, TemporaryDirectory(prefix="distrain-scores-") as folder:
        out, raw = str(Path(folder) / "scores.parquet"), RawOptions(is_raw=False)
        checked = check_request(PredictRequest(model_dir, (file,), out, tuple(keep), raw=raw))
        classes = columns_of_classes(model_dir, checked.saved)
        kept = tuple((name, name) for name in keep)
        score_file(str(model_dir), file, out, kept, None, classes=classes)
        return pq.read_table(out)


def scores_of_prepared(
    saved: SavedModel, on: torch.device, made: pa.Table, classes: Mapping[str, pa.Array]
) -> dict[str, Any]:
    """Return the score columns of prepared rows, by name; `classes` as for `score_columns`."""
    model, scores, at_once = saved.model, [], ROWS_AT_ONCE[on.type]
    for first in range(0, max(1, made.num_rows), at_once):
        batch = _batch_of(made.slice(first, at_once), saved).to(on)
        with torch.no_grad():
            scores.append(side_by_side(model.scores(batch)).cpu())
    return score_columns(model.task.targets, torch.cat(scores), classes)


def _no_scores(
    saved: SavedModel, on: torch.device, keep: Sequence[str], classes: Mapping[str, pa.Array]
) -> dict[str, Any]:
    inputs = saved.model.inputs
    lists = {name: pa.list_(pa.int32()) for name in inputs.list_names}
    lists |= {name: pa.list_(pa.float32()) for name in inputs.number_names}
    types = dict.fromkeys(inputs.categorical_names, pa.int32())
    types |= dict.fromkeys(inputs.continuous_names, pa.float32())
    made = pa.schema([*types.items(), *lists.items()]).empty_table()
    return dict.fromkeys(keep, pa.nulls(0)) | scores_of_prepared(saved, on, made, classes)


def _batch_of(made: pa.Table, saved: SavedModel) -> Batch:
    inputs = saved.model.inputs
    ids, numbers = inputs.categorical_names, inputs.continuous_names
    block = np.empty((len(ids) + len(numbers), made.num_rows), np.int32)
    for place, name in enumerate((*ids, *numbers)):
        block[place] = one_array(made[name]).to_numpy().view(np.int32)
    lists = {}
    for name in (*inputs.list_names, *inputs.number_names):
        rows = cut_lists(one_array(made[name]), saved.schema[name].max_list_length)
        offsets = torch.from_numpy(rows.offsets.to_numpy() - rows.offsets[0].as_py())
        lists[name] = Ragged(torch.from_numpy(rows.flatten().to_numpy().copy()), offsets)
    return BatchLayout(ids, numbers, ()).batch(torch.from_numpy(block), lists)


def _named(rows: Any) -> tuple[str, ...] | None:
    """Return the file names if `rows` is one or a list of them; `None` for rows in memory."""
    names = [rows] if isinstance(rows, str | Path) else rows
    if not isinstance(names, list | tuple) or not names:
        return None
    if all(isinstance(one, str | Path) for one in names):
        return tuple(map(str, names))
    return None


@contextmanager
def _rows_from(first: int) -> Iterator[None]:
    """In errors about a slice of rows, add `first`, its first row's number, to the row number."""
    try:
        yield
    except DistrainError as error:
        if isinstance(row := error.where.get("row"), int):
            error.where = {**error.where, "row": row + first}
        raise


@contextmanager
def _file_of(table: pa.Table) -> Iterator[str]:
    with TemporaryDirectory(prefix="distrain-rows-") as folder:
        file = str(Path(folder) / "rows.parquet")
        pq.write_table(table, file)
        with _errors_name_rows(file):
            yield file


@contextmanager
def _errors_name_rows(file: str) -> Iterator[None]:
    """In error messages, replace the temporary file's name with "the rows given"."""
    try:
        yield
    except DistrainError as error:
        for one in (error, *error.parts):
            _reword_for_rows(one, file)
        raise


def _reword_for_rows(error: DistrainError, file: str) -> None:
    words = {file: "the rows given", **_HINTS_OF_ROWS}
    for old, new in words.items():
        error.message = error.message.replace(old, new)
        error.hint = error.hint and error.hint.replace(old, new)
    error.args = (error.message,)
    error.where = {
        place: re.sub("^missing", "missing in the rows given", str(value))
        for place, value in error.where.items()
        if str(value) != file
    }
