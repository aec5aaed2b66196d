"""The loader inside torch's `DataLoader` with several workers, and so in what is built on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from distrain.batch import Batch
from distrain.errors import SpecError
from distrain.loader import Dataset, Loader

if TYPE_CHECKING:
    from tensordict import TensorDict

_MOST_WORKERS = 256

Form = Callable[[Batch], Any]


class WorkerBatches(IterableDataset[Any]):
    """A dataset's batches for torch's `DataLoader`, with any number of worker processes.

        batches = WorkerBatches(Dataset("criteo/train"), batch_size=4096, seed=1)
        for batch in DataLoader(batches, batch_size=None, num_workers=2):
            train(batch.categorical, batch.continuous, batch.label)

    A `Loader` without a `DataLoader` is faster: it decodes in threads, and nothing is copied from
    one process to another. This class is for code that asks for a `DataLoader`.

    Each worker has a loader with its share of the rows, as if it were a rank of its own: with `n`
    workers on each of `num_ranks` ranks, worker `w` of rank `r` is rank `r * n + w` of
    `num_ranks * n`. So each row of an epoch comes once, the batches of the workers take turns, and
    which rows share a batch depends on the number of workers. Workers that fork and workers that
    are spawned give the same batches.

    Each pass over the `DataLoader` is the next epoch, also where its workers are started anew.

    Args:
        dataset: What to load.
        batch_size: Rows of a batch, on average: shares of a step differ by some rows. The last
            batches of an epoch have fewer; those without rows are left out. With `drop_last=True`
            no step is cut short, and each rank has as many batches.
        form: Applied to each batch in the worker: `as_dict`, `as_tuple`, `as_tensordict`, or any
            function that can be pickled. `None` gives `Batch` objects.
        rank: This rank, from 0.
        num_ranks: Number of ranks, each of which has a `DataLoader` of its own.
        **options: Those of `Loader`, but `global_batch_size` and `device`: workers have no GPU. The
            workers of all ranks must divide `lanes`.
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
                f"WorkerBatches takes no {', '.join(refused)}",
                hint="Move batches to a device in the training loop; `form` changes them.",
            )
        self._dataset = dataset
        self._form = form
        self._rank, self._num_ranks = rank, num_ranks
        self._options = {"batch_size": batch_size, **options}
        # Seen by all workers, also by those that are started anew for each epoch: the next epoch of
        # each of them, which it alone writes while a pass goes on.
        self._next_epoch = torch.zeros(_MOST_WORKERS, dtype=torch.int64)
        self._next_epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._loader(0, 1)  # mistakes are told here, not in a worker

    def _loader(self, worker: int, num_workers: int) -> Loader:
        return Loader(
            self._dataset,
            rank=self._rank * num_workers + worker,
            num_ranks=self._num_ranks * num_workers,
            **self._options,
        )

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass this epoch.

        Raises:
            SpecError: `epoch` is negative.
        """
        if epoch < 0:
            raise SpecError(f"epoch is {epoch}, not 0 or more")
        self._next_epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, num_workers = (info.id, info.num_workers) if info else (0, 1)
        if num_workers > _MOST_WORKERS:
            raise SpecError(f"{num_workers} workers are more than {_MOST_WORKERS}")
        loader = self._loader(worker, num_workers)
        epoch = int(self._next_epoch[worker])
        self._next_epoch[worker] = epoch + 1
        with loader, loader.epoch(epoch) as batches:
            for batch in batches:
                if batch.num_rows:
                    yield batch if self._form is None else self._form(batch)


def as_dict(batch: Batch) -> dict[str, Any]:
    """Each column as `[rows]` under its name, targets and weight included.

    Lists are `torch.nested` tensors of the layout `torch.jagged`.
    """
    names = (*batch.categorical_names, *batch.continuous_names, *batch.label_names)
    columns: dict[str, Any] = {name: batch[name] for name in names}
    if batch.labels is None and batch.label is not None:
        columns["label"] = batch.label
    if batch.weight is not None:
        columns["weight"] = batch.weight
    for name, rows in batch.lists.items():
        columns[name] = torch.nested.nested_tensor_from_jagged(rows.values, rows.offsets.long())
    return columns


def as_tuple(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Ids `[rows, columns]`, int32; numbers `[rows, columns]`, float32; targets `[rows]`, float32.

    Where there are several targets, they are `[rows, targets]`; without any, `None`.
    """
    target = batch.labels if len(batch.label_names) > 1 else batch.label
    return batch.categorical, batch.continuous, target


def as_tensordict(batch: Batch) -> TensorDict:
    """`as_dict` as a `TensorDict` of batch size `[rows]`; needs the package tensordict.

    The `DataLoader` needs `collate_fn=unchanged` with it: torch's own takes it for a plain dict.
    """
    from tensordict import TensorDict

    return TensorDict(as_dict(batch), batch_size=[batch.num_rows])


def unchanged(batch: Any) -> Any:
    """The batch itself, as a `collate_fn` that can be pickled."""
    return batch
