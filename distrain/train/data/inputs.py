"""Finds and checks a job's schema and tables, before training begins."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import ErrorCollector, SchemaError, SpecError
from distrain.jobs.spec.data import DataSpec, WindowsSpec
from distrain.jobs.spec.fields import Pooling
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.models.kinds import (
    CustomSpec,
    EmbeddingsSpec,
    ModelSpec,
    SasrecRetrievalSpec,
    TwoTowerSpec,
)
from distrain.jobs.spec.targets import with_targets
from distrain.loader.options import parse_bytes
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.negative_downsampling import downsampled
from distrain.loader.partition.table import Table
from distrain.loader.partition.wanted_columns import wanted_columns
from distrain.schema.column import Tags
from distrain.schema.criteo import criteo_schema
from distrain.schema.files import find_schema, find_schema_next_to, schema_of_rows
from distrain.schema.schema import Schema
from distrain.storage.inputs import PARQUET_SUFFIXES, list_inputs
from distrain.storage.urls import is_remote
from distrain.train.data.job_tables import Inputs, read_tables
from distrain.train.data.vocabularies import (
    WORKFLOW,
    Vocabularies,
    check_meaning,
    vocabularies_in,
    workflows_next_to,
)

if TYPE_CHECKING:
    from distrain.models.blueprint import Blueprint
    from distrain.models.heads.tasks import Task

PATIENCE_S = 10.0
"""Seconds for which a command retries a storage that does not answer, while the user waits."""


def check_inputs(spec: JobSpec, retry_s: float = PATIENCE_S, handed: Path | None = None) -> Inputs:
    """Find the schema, read all footers, and check that the data can be trained on.

    The command line calls this before it requests a cluster, every rank before it builds a model.

    Args:
        retry_s: Seconds of retries if the storage does not answer; at most `data.retry_s`.
        handed: A file with the tables that the command has read (`write_tables`); if it cannot be
            used, the footers are read.

    Raises:
        InputError: The spec, the schema or the data cannot be used; several mistakes are joined
            into one error (`ErrorCollector`).
        Unavailable: The storage does not answer.
    """
    mistakes = ErrorCollector()
    inputs = None
    with mistakes.collected():
        check_fields(spec)
    with mistakes.collected():
        inputs = read_inputs(spec, retry_s, handed)
    mistakes.raise_collected()
    assert inputs is not None
    return inputs


def check_fields(spec: JobSpec) -> None:
    """Raise `SpecError` for invalid sizes in `data`, or validations without validation rows.

    Only the spec is read.
    """
    mistakes = ErrorCollector()
    with mistakes.collected():
        _check_sizes(spec.data)
    with mistakes.collected():
        _check_validation(spec)
    mistakes.raise_collected()


def read_inputs(spec: JobSpec, retry_s: float = PATIENCE_S, handed: Path | None = None) -> Inputs:
    """Return the schema and tables of a job; like `check_inputs`, but without `check_fields`."""
    retry_s = min(retry_s, spec.data.retry_s)
    path = find_data_schema(spec.data, retry_s)
    schema = criteo_schema() if path is None else Schema.load(path)

    def read(patterns: Sequence[str], windows: WindowsSpec | None = None) -> Table:
        return read_footers(
            patterns,
            schema=schema,
            hive=spec.data.hive,
            fill_null_id=spec.data.fill_null_id,
            fill_null_value=spec.data.fill_null_value,
            row_filter=spec.data.filter,
            windows=windows,
            retry_s=retry_s,
        )

    mistakes = ErrorCollector()
    train = valid = unthinned = tables = None
    file = path or spec.data.schema_path
    with _schema_named(file):
        schema = _with_list_limits(schema, spec.data.max_list_length)
        schema = with_targets(schema, spec)
        _check_trainable(schema, spec.model)
        wanted_columns(schema, need_label=True)  # otherwise both splits report its errors
        tables = handed and read_tables(handed, spec, schema)
    if tables:
        train, valid, unthinned = tables.train, tables.valid, tables.unthinned
    else:
        with mistakes.collected(), _schema_named(file):
            train = read(spec.data.train, spec.data.windows)
            if spec.data.negatives < 1:
                unthinned, train = train, _thinned(train, spec, schema, retry_s)
        with mistakes.collected(), _schema_named(file):
            valid = read(spec.data.valid) if spec.data.valid else None
    with mistakes.collected(), _schema_named(file):
        lists = list_combiners(schema, spec.embeddings)
        _check_model(schema, spec, lists)
    mistakes.raise_collected()
    assert train is not None
    if valid is not None:
        _check_disjoint(train, valid)
    if not tables:
        _check_one_meaning(spec.data, schema, train, valid)
    return Inputs(schema, train, valid, unthinned)


@contextmanager
def _schema_named(path: str | Path) -> Iterator[None]:
    try:
        yield
    except SchemaError as error:
        where = {"schema": path, **error.where}
        raise SchemaError(error.message, where=where, hint=error.hint) from None


def find_data_schema(data: DataSpec, retry_s: float = 0.0) -> Path | str | None:
    """Return the schema file of `data.schema`; `None` for the `criteo` preset without a file.

    `auto` searches the folder of the first training file and the one above it, where `distrain
    prep` writes it. `criteo` does the same, but the result is `None` if there is no such file.
    Other values are a file, a folder or a URL, which is returned unchanged. Raises `SchemaError` if
    `auto` finds no schema; `DataError` or `Unavailable` if the training files cannot be listed.
    """
    if is_remote(data.schema_path):
        return data.schema_path
    if data.schema_path not in ("auto", "criteo"):
        path = Path(data.schema_path)
        return find_schema(path) if path.is_dir() else path
    if data.schema_path == "criteo":
        files = list_inputs(data.train, suffixes=PARQUET_SUFFIXES, retry_s=retry_s)
        return find_schema_next_to(files[0].path)
    hint = "Set data.schema to a schema.pbtxt or schema.json; `distrain prep` writes both."
    return schema_of_rows(data.train, hint, retry_s)


def find_vocabularies(data: DataSpec, schema: Schema) -> Vocabularies:
    """Return the vocabularies of the workflow beside the job's schema.

    Unreadable files count as unknown. All bytes of the vocabularies are read, for their checksums,
    so call it once per training.
    """
    path = find_data_schema(data)
    if path is None:
        return Vocabularies({})
    folder = os.path.dirname(path if isinstance(path, str) else path.absolute())
    workflow = f"{folder}/{WORKFLOW}"
    if os.path.basename(folder) == ".merlin":  # Merlin's layout, which 0.2.0 used in packed tables
        workflow = next(iter(workflows_next_to([folder])), workflow)
    return vocabularies_in(workflow, schema)


def list_combiners(schema: Schema, embeddings: EmbeddingsSpec) -> dict[str, Pooling]:
    """Return the combiner of each categorical list column.

    Raises `SpecError` if `embeddings.combiners` names other columns.
    """
    features = schema.remove_by_tag(Tags.TARGET)
    lists = [column.name for column in features.categorical if column.holds_lists]
    others = [name for name in embeddings.combiners if name not in lists]
    if others:
        raise SpecError(
            f"embeddings.combiners: not categorical columns of lists: {', '.join(others)}",
            hint=f"Columns of lists: {', '.join(lists) or 'none'}.",
        )
    return {name: embeddings.combiners.get(name, embeddings.combiner) for name in lists}


def _with_list_limits(schema: Schema, limits: Mapping[str, int]) -> Schema:
    """Return the schema with the limits of list lengths, as the saved model will have it.

    Raises `SpecError` for a limit of a column that does not hold lists.
    """
    lists = [column.name for column in schema.columns if column.holds_lists]
    others = [name for name in limits if name not in lists]
    if others:
        raise SpecError(
            f"data.max_list_length: not columns of lists: {', '.join(others)}",
            hint=f"Columns of lists: {', '.join(lists) or 'none'}.",
        )
    limited = [
        replace(schema[name], properties={**schema[name].properties, "max_list_length": most})
        for name, most in limits.items()
    ]
    return schema.with_columns(*limited)


def _check_sizes(data: DataSpec) -> None:
    for field, size in (("part_size", data.part_size), ("cache_size", data.cache_size)):
        try:
            parse_bytes(1 if size is None else size)
        except SpecError as error:
            raise SpecError(f"data.{field}: {error.message}", hint=error.hint) from None


def _check_validation(spec: JobSpec) -> None:
    if spec.evaluate.every_steps and not spec.data.valid:
        raise SpecError(
            "evaluate.every_steps is set, but data.valid names no files",
            hint="Name validation files, or leave evaluate.every_steps out.",
        )


def _check_model(schema: Schema, spec: JobSpec, lists: Mapping[str, Pooling]) -> None:
    """Raise an error if the model does not fit the columns, weights or targets.

    A user-defined model is checked on the ranks only: its package may be missing here.
    """
    from distrain.models.build import blueprint_of
    from distrain.models.heads.named_head import weigh

    if not isinstance(spec.model, CustomSpec):
        blueprint = blueprint_of(schema, spec.model, lists)
        weigh(blueprint.task, schema, spec.data.class_weight)
        check_negatives(spec.data, schema, blueprint.task)
        blueprint.check()
        _check_limits(blueprint)


def _check_limits(blueprint: "Blueprint") -> None:
    """Raise `SpecError` if `data.max_list_length`, or the schema, limits a list of events.

    The limit keeps the first items, which are the oldest events; the model reads the newest.
    """
    events = blueprint.inputs.shape.events
    lists = {column.name for one in events for column in (*one.lists.values(), *one.numbers)}
    limited = sorted(name for name in lists if blueprint.inputs.schema[name].max_list_length)
    if limited:
        raise SpecError(
            "data.max_list_length keeps a row's oldest events, but the model reads the newest: "
            + ", ".join(limited),
            hint="Leave these lists out of it: model.max_length says how many events are read.",
        )


def _check_trainable(schema: Schema, model: ModelSpec) -> None:
    """Raise `SchemaError` for parts of the schema that the loader supports, but not the model.

    There must be a target; for retrieval models and two towers exactly one, which is binary. Lists
    of numbers must be fields of events.
    """
    targets = schema.select_by_tag(Tags.TARGET)
    has_towers = isinstance(model, TwoTowerSpec | SasrecRetrievalSpec)
    if not targets.columns or has_towers:
        _ = schema.target  # raises unless there is exactly one
    if has_towers and schema.target.target_kind != "binary":
        raise SchemaError(
            f"a {model.kind} model needs labels 0 and 1, but the target is not binary",
            where={"target": schema.target.name, "kind": schema.target.target_kind},
            hint="Choose another model, or a binary target.",
        )
    numbers = [column for column in schema.continuous if column.holds_lists]
    lists = [column.name for column in numbers if column.event == column.name]
    if lists:
        raise SchemaError(
            f"the models take lists of ids, but not of numbers: {', '.join(lists)}",
            hint="Leave these columns out of the schema, reduce each list to one value, or make "
            "them fields of an event.",
        )


def check_negatives(data: DataSpec, schema: Schema, task: "Task") -> None:
    """Raise `SpecError` if `data.negatives` is set, unless it suits the job's targets.

    It suits a single binary target whose scores are probabilities: its logits are shifted to
    correct for the removed negatives.
    """
    names = schema.select_by_tag(Tags.TARGET).names
    kinds = [target.kind for target in task.targets]
    # Tasks of two-tower models rank items and predict no probabilities, so they lack the log loss.
    if data.negatives < 1 and (
        len(names) != 1 or kinds != ["binary"] or "log_loss" not in task.metrics
    ):
        raise SpecError(
            "data.negatives needs a single binary target, and scores that are probabilities",
            where={"data.negatives": data.negatives, "targets": ", ".join(names),
                   "kinds": ", ".join(kinds)},
            hint="Leave data.negatives out.",
        )  # fmt: skip


def _thinned(table: Table, spec: JobSpec, schema: Schema, retry_s: float) -> Table:
    share, labels = spec.data.negatives, schema.select_by_tag(Tags.TARGET).names
    if len(labels) != 1:  # a job with several labels is rejected elsewhere
        return table
    return downsampled(table, labels[0], share, spec.train.seed, retry_s)


def _check_one_meaning(data: DataSpec, schema: Schema, train: Table, valid: Table | None) -> None:
    """Raise `DataError` if files in different folders were prepared with different workflows."""
    files = [*train.compact.files, *(valid.compact.files if valid else ())]
    if len({os.path.dirname(os.path.dirname(file)) for file in files}) > 1:
        known = find_vocabularies(data, schema)
        check_meaning(known, f"data.train ({data.train[0]})", files, schema)


def _check_disjoint(train: Table, valid: Table) -> None:
    common = {*train.compact.files} & {*valid.compact.files}
    if common:
        raise SpecError(
            "data.train and data.valid name the same file",
            where={"file": min(common)},
            hint="Metrics of training rows say nothing about new rows.",
        )
