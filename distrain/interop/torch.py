"""Forms of a batch for other training loops: tuples, dictionaries, and those of TorchRec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from distrain.errors import SpecError
from distrain.loader.batch import Batch, Ragged
from distrain.loader.partition.wanted_columns import wanted_columns
from distrain.schema.column import Tags
from distrain.schema.schema import Schema

if TYPE_CHECKING:
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor


def as_dict(batch: Batch) -> dict[str, Any]:
    """Return each column as `[rows]` under its name, including targets and weights of tasks.

    The rows' weight is named `weight`; a target without a name is named `label`. Lists are
    `torch.nested` tensors of the layout `torch.jagged`. Raises `SpecError` if a feature of a batch
    with weights is named `weight`.
    """
    names = (*batch.categorical_names, *batch.continuous_names, *batch.label_names)
    columns: dict[str, Any] = {name: batch[name] for name in names}
    if batch.labels is None and batch.label is not None:
        columns["label"] = batch.label
    if batch.weight is not None:
        if "weight" in columns:
            raise SpecError(
                "the feature name `weight` is reserved for row weights",
                hint="Rename it, or leave the weight column out of the schema.",
            )
        columns["weight"] = batch.weight
    for name in batch.task_weight_names:
        columns[name] = batch[name]
    for name, rows in batch.lists.items():
        columns[name] = torch.nested.nested_tensor_from_jagged(rows.values, rows.offsets.long())
    return columns


def as_tuple(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return ids `[rows, columns]`, int32; numbers `[rows, columns]`, float32; and targets.

    Targets are `[rows]`, float32; `[rows, targets]` for several targets; without any, `None`.
    """
    target = batch.labels if len(batch.label_names) > 1 else batch.label
    return batch.categorical, batch.continuous, target


def as_keyed_jagged(batch: Batch) -> tuple[KeyedJaggedTensor, torch.Tensor, torch.Tensor | None]:
    """Return `as_tuple` with ids as TorchRec's `KeyedJaggedTensor`; needs the package torchrec.

    The keys are the id columns in the batch's order, then the lists of ids. A flat column has
    one id in each row. Values and lengths are int32. Without lists, ids are not copied.
    """
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    lists = {name: rows for name, rows in batch.lists.items() if rows.values.dtype == torch.int32}
    ids, numbers, target = as_tuple(batch)
    values, lengths = ids.t().reshape(-1), torch.ones(ids.numel(), dtype=torch.int32)
    lengths = lengths.to(ids.device)
    if lists:
        values = torch.cat([values, *(rows.values for rows in lists.values())])
        lengths = torch.cat([lengths, *(rows.lengths for rows in lists.values())])
    keys = [*batch.categorical_names, *lists]
    return KeyedJaggedTensor(keys=keys, values=values, lengths=lengths), numbers, target


def batch_of(columns: Mapping[str, Any], schema: Schema) -> Batch:
    """Return a batch of columns that do not come from a `Loader`, such as those of `as_dict`.

    The rows' weight is read under its name in the schema; `as_dict` names it `weight`.

    Args:
        columns: Tensors or arrays, `[rows]`, by name; for lists a nested tensor or each row's
            values, which are cut at the column's `max_list_length`. Columns outside the schema are
            dropped. Targets and weights may be missing. Values are not checked.
        schema: The schema of the columns.

    Raises:
        SpecError: A feature or some of the targets are missing.
        SchemaError: The schema cannot be used (see `wanted_columns`).

    >>> from distrain.schema import ColumnSchema
    >>> user = ColumnSchema("user", tags=("categorical",), cardinality=9)
    >>> age = ColumnSchema("age", "float32", ("continuous",))
    >>> columns = {"age": torch.tensor([0.5]), "user": torch.tensor([7])}
    >>> batch = batch_of(columns, Schema((user, age)))
    >>> batch.categorical.tolist(), batch.continuous.tolist(), batch.label
    ([[7]], [[0.5]], None)
    """
    weight = schema.select_by_tag(Tags.WEIGHT).names
    if weight and "weight" in columns and "weight" not in schema.names:
        columns = {weight[0]: columns["weight"], **columns}  # as `as_dict` names it
    targets = schema.select_by_tag(Tags.TARGET).names
    has_targets = any(name in columns for name in targets)
    wanted = wanted_columns(schema, need_label=has_targets)
    missing = [c.name for c in wanted if c.name not in columns and not c.is_weight]
    if missing:
        hint = "Read them, or leave them out of the schema."
        raise SpecError(f"columns are missing: {', '.join(missing)}", hint=hint)
    dtypes = {"id": torch.int32}
    lists = {
        c.name: _ragged(columns[c.name], dtypes.get(c.kind, torch.float32), c.keep_length)
        for c in wanted
        if c.is_list
    }
    flat = [c for c in wanted if c.name in columns and not c.is_list]
    cells = {c.name: torch.as_tensor(columns[c.name]) for c in flat}
    # There is at least one feature.
    feature = cells[flat[0].name] if flat else next(iter(lists.values())).lengths

    def matrix(kind: str, dtype: torch.dtype) -> tuple[tuple[str, ...], torch.Tensor]:
        names = tuple(c.name for c in wanted if c.kind == kind and c.name in cells)
        if not names:
            return names, torch.empty(len(feature), 0, dtype=dtype, device=feature.device)
        return names, torch.stack([cells[name].to(dtype) for name in names]).t()

    id_names, ids = matrix("id", torch.int32)
    value_names, values = matrix("value", torch.float32)
    label_names, labels = matrix("label", torch.float32)
    weights = matrix("weight", torch.float32)[1]
    task_weight_names, task_weights = matrix("task_weight", torch.float32)
    return Batch(
        ids,
        values,
        labels[:, 0] if label_names else None,
        id_names,
        value_names,
        labels if label_names else None,
        label_names,
        weights[:, 0] if weights.shape[1] else None,
        lists,
        task_weights if task_weight_names else None,
        task_weight_names,
    )


def _ragged(rows: Any, dtype: torch.dtype, most: int | None) -> Ragged:
    """Return a list column with the first `most` values of each row; `None` for all.

    `rows` is a nested tensor, or a sequence of each row's values.
    """
    if getattr(rows, "is_nested", False):
        if most is None:
            return Ragged(rows.values().to(dtype), rows.offsets().to(torch.int32))
        rows = rows.unbind()
    parts = [torch.as_tensor(row, dtype=dtype).reshape(-1)[:most] for row in rows]
    ends = torch.tensor([0, *map(len, parts)]).cumsum(0)
    return Ragged(torch.cat([torch.empty(0, dtype=dtype), *parts]), ends.to(torch.int32))
