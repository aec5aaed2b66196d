"""Makes job specs for folders that `distrain prep` wrote, with settings that fit their schemas."""

import re
from collections.abc import Callable, Collection
from typing import Any, get_args

from distrain.errors import SpecError
from distrain.jobs.spec.data import DataSpec, WindowsSpec
from distrain.jobs.spec.fit_to_table import TableFacts, fit_to
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.models.kinds import DlrmSpec, MlpSpec, ModelSpec
from distrain.jobs.spec.resources import ResourcesSpec
from distrain.jobs.spec.tasks import INPUT_NAMES
from distrain.jobs.spec.training import OptimizerSpec, TrainSpec
from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.schema import Schema


def criteo_mlp(data: str, num_ranks: int = 1) -> JobSpec:
    """Return a job for the MLP of NVTabular's notebook "Scaling Criteo: Training with TensorFlow".

    `data` is the folder that `distrain prep` wrote, with the folders `train` and `valid`.
    """
    return JobSpec(
        name="criteo-mlp",
        data=_prepared(data),
        model=MlpSpec(embedding_dim=16, hidden=(128, 128, 128)),
        train=TrainSpec(global_batch_size=65536, optimizer=OptimizerSpec(kind="sgd", lr=0.01)),
        resources=ResourcesSpec(num_ranks=num_ranks),
    )


def criteo_dlrm(data: str, num_ranks: int = 1) -> JobSpec:
    """Return a job for a small DLRM with embeddings of width 16 and Adagrad.

    `data` is the folder that `distrain prep` wrote, with the folders `train` and `valid`.
    """
    return JobSpec(
        name="criteo-dlrm",
        data=_prepared(data),
        model=DlrmSpec(embedding_dim=16, bottom=(128, 64), top=(64, 128, 256)),
        train=TrainSpec(global_batch_size=8192, optimizer=OptimizerSpec(kind="adagrad", lr=0.02)),
        resources=ResourcesSpec(num_ranks=num_ranks),
    )


PRESETS: dict[str, Callable[[str, int], JobSpec]] = {
    "criteo-mlp": criteo_mlp,
    "criteo-dlrm": criteo_dlrm,
}


def _prepared(data: str) -> DataSpec:
    folder = data.rstrip("/")
    return DataSpec(train=(f"{folder}/train",), valid=(f"{folder}/valid",))


MODELS: dict[str, Any] = {
    model.model_fields["kind"].default: model
    for model in get_args(get_args(ModelSpec)[0])
    if model.model_fields["kind"].default != "custom"
}
"""The models without custom code, by kind."""

_OF_EVENTS = ("din", "bst", "sasrec", "hstu", "sasrec_retrieval")
_SIDES = ((Tags.USER, Tags.USER_ID), (Tags.ITEM, Tags.ITEM_ID))


def check_kind(kind: str) -> None:
    """Raise a `SpecError` unless there is a preset or a model of this name."""
    if kind not in (known := (*PRESETS, *MODELS)):
        raise SpecError(f"no model {kind!r}", hint=f"Choose one of {', '.join(known)}.")


def job_for(
    kind: str, data: str, schema: Schema | None, table: TableFacts | None = None
) -> dict[str, Any]:
    """Return a job spec as plain values for a preset or a kind of model, with the schema's columns.

    The schema's targets become `model.tasks` if there are several, or if one is not binary. Its
    columns of weights and of windows become `data.weight` and `data.windows`.

    Args:
        kind: A key of `PRESETS` or `MODELS`.
        data: The folder that `distrain prep` wrote, with the folders `train` and `valid`.
        schema: The schema of the data; `None` if unknown.
        table: Properties of the data, for which training settings are chosen (`fit_to`), except for
            presets, which have their own; `None` if unknown.

    Raises:
        SpecError: There is no such model, or it does not suit the schema's columns or targets.
    """
    check_kind(kind)
    document: dict[str, Any]
    if kind in PRESETS:
        document = PRESETS[kind](data, 1).model_dump(mode="json")
        kind = document["model"]["kind"]
        table = None
    else:
        document = PRESETS["criteo-dlrm"](data, 1).model_dump(mode="json")
        document["name"] = kind.replace("_", "-")
        document["model"] = {"kind": kind, **_columns_of(kind, schema)}
        has_weight = schema is not None and len(schema.select_by_tag(Tags.WEIGHT))
        if kind == "two_tower" and not has_weight:  # retrieval allows no weights
            document["model"]["task"] = "retrieval"
        document["train"]["global_batch_size"] = "auto"
        document["train"]["epochs"] = "auto"
    if schema is None:
        return document
    if tasks := _tasks(schema):
        if "tasks" not in MODELS[kind].model_fields:
            raise SpecError(
                f"{kind} needs one target of 0 and 1, but the schema has {', '.join(tasks)}",
                hint="Choose another model, such as mlp, or name one target when preparing.",
            )
        document["model"]["tasks"] = tasks
    if weights := schema.select_by_tag(Tags.WEIGHT).names:
        document["data"]["weight"] = weights[0]
    if windows := windows_of(schema):
        document["data"]["windows"] = windows.model_dump(mode="json")
        document["evaluate"]["next_window"] = True
    if table is not None:
        fit_to(document, schema, table, MODELS[kind].model_fields)
    return document


def windows_of(schema: Schema) -> WindowsSpec | None:
    """Return the windows that the data was prepared for, as recorded in its schema.

    `None` if the schema records no windows.
    """
    columns = schema.select_by_tag(Tags.TIME).columns
    found = [column for column in columns if "window_size" in column.properties]
    if not found:
        return None
    return WindowsSpec(by=found[-1].name, size=found[-1].properties["window_size"])


def _tasks(schema: Schema) -> dict[str, Any]:
    targets = schema.select_by_tag(Tags.TARGET).columns
    if len(targets) < 2 and all(column.target_kind == "binary" for column in targets):
        return {}
    tasks: dict[str, Any] = {}
    for column in targets:
        tasks[_task_name(column.name, (*INPUT_NAMES, *tasks))] = _task(column)
    return tasks


def _task_name(column: str, taken: Collection[str]) -> str:
    """Return a valid task name made from a column's name, with a number if it is in `taken`."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", column).lstrip("-") or "task"
    endings = ("", *(f"_{number}" for number in range(2, len(taken) + 2)))
    names = (name[: 63 - len(ending)] + ending for ending in endings)
    return next(name for name in names if name not in taken)


def _task(column: ColumnSchema) -> dict[str, Any]:
    kind = column.target_kind
    classes = {"classes": column.cardinality} if kind == "multiclass" else {}
    return {"target": column.name, "kind": kind, **classes}


def _columns_of(kind: str, schema: Schema | None) -> dict[str, Any]:
    """Return fields of the section `model` that depend on the schema, besides `kind` and `tasks`.

    Raises `SpecError` if the schema lacks columns that the model needs.
    """
    flat = Schema(tuple(c for c in schema.categorical if not c.holds_lists)) if schema else Schema()
    if kind == "dlrm_cross":
        crossed = sorted(flat, key=lambda column: -(column.cardinality or 0))[:2]
        if len(crossed) < 2:
            raise SpecError("dlrm_cross needs at least two categorical columns to cross")
        return {"crosses": [{"columns": [column.name for column in crossed]}]}
    if kind in ("two_tower", "ncf"):
        tags = [side[1:] if kind == "ncf" else side for side in _SIDES]
        lacking = [side[-1] for side in tags if not len(flat.select_by_tag(*side))]
        if lacking:
            raise SpecError(
                f"{kind} needs columns of a user and of an item: none is tagged "
                f"{' or '.join(lacking)}",
                hint="Tag them in the features document (tags: [user_id]), and prepare the data "
                "again.",
            )
    own = {column.domain for column in flat}
    lists = [c for c in schema.categorical if c.holds_lists and c.domain in own] if schema else []
    if kind in _OF_EVENTS and schema and not lists:
        raise SpecError(
            f"{kind} needs events: lists of ids of the same domain as a column of the row; the "
            "data has none",
            hint="Create them with `history` in the features document, or give list and column "
            "the same `domain` there (docs/features.md), and prepare the rows again.",
        )
    if kind == "sasrec_retrieval" and schema and not len(flat.select_by_tag(Tags.ITEM_ID)):
        raise SpecError(
            f"{kind} needs a column with the tag item_id",
            hint="Tag it in the features document (tags: [item_id]), and prepare the data again.",
        )
    if kind == "sasrec_retrieval" and len(lists) < 2:  # with more lists, no negatives are drawn
        # This came closest to a softmax over all items (docs/benchmarks.md).
        return {"negatives": "uniform", "num_negatives": 16}
    return {}
