"""Adapts the loader to torch's `DataLoader` with several workers, to tensordict and TorchRec."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from distrain.errors import SpecError
from distrain.loader.batch import Batch, Ragged
from distrain.loader.dataset import Dataset
from distrain.loader.loader import Loader
from distrain.loader.partition.wanted_columns import wanted_columns
from distrain.schema.column import Tags
from distrain.schema.schema import Schema

if TYPE_CHECKING:
    from tensordict import TensorDict
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

_MOST_WORKERS = 256
_PASSES_KNOWN = 16
_KEY_COLUMNS = 4

Form = Callable[[Batch], Any]


class WorkerBatches(IterableDataset[Any]):
    """A dataset's batches for torch's `DataLoader`, with any number of worker processes.

        batches = WorkerBatches(Dataset("criteo/train"), batch_size=4096, seed=1)
        for batch in DataLoader(batches, batch_size=None, num_workers=2):
            train(batch.categorical, batch.continuous, batch.label)

    A `Loader` without a `DataLoader` is faster: it decodes in threads, and copies nothing between
    processes. This class is for code that requires a `DataLoader`. Each worker has a loader with
    its share of the rows, as if the worker were a rank: with `n` workers on each of `num_ranks`
    ranks, worker `w` of rank `r` is rank `r * n + w` of `num_ranks * n`. So each row of an epoch is
    read once, and the batches of the workers alternate. Which rows share a batch depends on the
    number of workers. Forked and spawned workers give the same batches. Each pass over the
    `DataLoader` is the next epoch, also if its workers are restarted.

    Args:
        dataset: The dataset to load.
        batch_size: Rows of a batch, on average: shares of a step differ by some rows. The last
            batches of an epoch have fewer; empty ones are dropped. With `drop_last=True` no step
            is shortened, and every rank has the same number of batches.
        form: Applied to each batch in the worker: `as_dict`, `as_tuple`, `as_tensordict`, or any
            function that can be pickled. `None` gives `Batch` objects.
        rank: This rank, from 0.
        num_ranks: Number of ranks, each with its own `DataLoader`.
        **options: The options of `Loader`, except `global_batch_size`, `transforms` and `device`:
            workers have no GPU. The number of workers of all ranks must divide `lanes`.

    Raises:
        SpecError: `global_batch_size`, `transforms` or `device` is given, or `Loader` rejects an
            option.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int,
        form: Form | None = None,
        rank: int = 0,
        num_ranks: int = 1,
        **options: Any,
    ):
        refused = sorted({"device", "global_batch_size", "transforms"} & options.keys())
        if refused:
            raise SpecError(
                f"WorkerBatches does not accept {', '.join(refused)}",
                hint="Move batches to a device in the training loop; `form` changes them.",
            )
        self._dataset = dataset
        self._form = form
        self._rank, self._num_ranks = rank, num_ranks
        self._options = {"batch_size": batch_size, **options}
        self._passes = _Passes()
        self._loader(0, 1)  # raises errors here, not in a worker

    def _loader(self, worker: int, num_workers: int) -> Loader:
        return Loader(
            self._dataset,
            rank=self._rank * num_workers + worker,
            num_ranks=self._num_ranks * num_workers,
            **self._options,
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch that the next pass yields.

        Raises:
            SpecError: `epoch` is negative.
        """
        if epoch < 0:
            raise SpecError(f"epoch is {epoch}, not 0 or more")
        self._passes.set_next(epoch)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, num_workers = (info.id, info.num_workers) if info else (0, 1)
        seed = info.seed - info.id if info else None
        if num_workers > _MOST_WORKERS:
            raise SpecError(f"{num_workers} workers are more than {_MOST_WORKERS}")
        loader = self._loader(worker, num_workers)
        epoch = self._passes.begin(worker, num_workers, seed)
        with loader, loader.epoch(epoch) as batches:
            for batch in batches:
                if batch.num_rows:
                    yield batch if self._form is None else self._form(batch)


class _Passes:
    """Chooses the epoch of each pass over a `DataLoader`, the same in all its workers.

    The state is in shared memory. A pass is identified by the workers' common seed, which
    `DataLoader` redraws each time it starts workers, and by the number of passes that these workers
    have begun. The first worker that begins a pass takes the next epoch for it. Separate counts in
    the workers would disagree, because a pass may end before some worker has begun it.
    """

    def __init__(self, next_epoch: int = 0) -> None:
        # A lock of this context can be passed to all workers: forked, spawned, or of a fork server.
        self._lock = get_context("spawn").Lock()
        self._begun = 0
        self._next_epoch = _shared(1)
        self._next_epoch.fill_(next_epoch)
        self._next_place = _shared(1)
        self._keys = _shared(_PASSES_KNOWN, _KEY_COLUMNS)
        self._epochs = _shared(_PASSES_KNOWN)
        self._joined = _shared(_PASSES_KNOWN, _MOST_WORKERS)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: all attributes, shared with a worker that is being started.

        If no worker is being started, the copy is independent, and only gets the next epoch.
        """
        if get_spawning_popen() is not None:
            return self.__dict__
        return {"next_epoch": int(self._next_epoch)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "next_epoch" in state:
            self.__init__(**state)  # type: ignore[misc]
        else:
            self.__dict__.update(state)

    def set_next(self, epoch: int) -> None:
        with self._lock:
            self._next_epoch.fill_(epoch)

    def begin(self, worker: int, num_workers: int, seed: int | None) -> int:
        """Return the epoch of the next pass of worker `worker`, of `num_workers` workers.

        `seed` is the workers' common seed; `None` outside of workers.
        """
        with self._lock:
            if seed is None:
                return self._take_next()
            key = torch.tensor([seed, os.getppid(), num_workers, self._begun])
            self._begun += 1
            # An entry that this worker has already joined is an earlier pass with this seed.
            same = (self._keys == key).all(1) & (self._joined[:, worker] == 0)
            if same.any():
                place = int(same.nonzero()[-1])
            else:
                place = int(self._next_place) % _PASSES_KNOWN
                self._next_place += 1
                self._keys[place] = key
                self._joined[place] = 0
                self._epochs[place] = self._take_next()
            self._joined[place, worker] = 1
            return int(self._epochs[place])

    def _take_next(self) -> int:
        epoch = int(self._next_epoch)
        self._next_epoch += 1
        return epoch


def _shared(*sizes: int) -> torch.Tensor:
    numbers = torch.zeros(*sizes, dtype=torch.int64)
    numbers.share_memory_()  # type: ignore[no-untyped-call]
    return numbers


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


def as_tensordict(batch: Batch) -> TensorDict:
    """Return `as_dict` as a `TensorDict` of batch size `[rows]`; needs the package tensordict.

    The `DataLoader` needs `collate_fn=unchanged` with it: torch's default treats it as a plain
    dict.
    """
    from tensordict import TensorDict

    return TensorDict(as_dict(batch), batch_size=[batch.num_rows])


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
            values. Columns outside the schema are dropped. Targets and weights may be missing.
            Values are not checked.
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
        c.name: _ragged(columns[c.name], dtypes.get(c.kind, torch.float32))
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


def _ragged(rows: Any, dtype: torch.dtype) -> Ragged:
    """Return a list column; `rows` is a nested tensor, or a sequence of each row's values."""
    if getattr(rows, "is_nested", False):
        return Ragged(rows.values().to(dtype), rows.offsets().to(torch.int32))
    parts = [torch.as_tensor(row, dtype=dtype).reshape(-1) for row in rows]
    ends = torch.tensor([0, *map(len, parts)]).cumsum(0)
    return Ragged(torch.cat([torch.empty(0, dtype=dtype), *parts]), ends.to(torch.int32))


def unchanged(batch: Any) -> Any:
    """Return the batch itself, as a `collate_fn` that can be pickled."""
    return batch
