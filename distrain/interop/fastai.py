"""Adapts the loader to fastai's `DataLoaders`, for a `Learner` with a `TabularModel`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.torch_core import to_device
from torch import Tensor

from distrain.errors import SpecError
from distrain.interop.torch import as_tuple
from distrain.loader.batch import Batch
from distrain.loader.dataset import Dataset
from distrain.loader.loader import Loader


def data_loaders(
    train: Loader, *valid: Loader, target_dtype: torch.dtype = torch.long, path: str | Path = "."
) -> DataLoaders:
    """Return loaders as fastai's `DataLoaders`; each pass over `train` is its next epoch.

        dls = data_loaders(
            Loader(Dataset("criteo/train"), batch_size=65536),
            Loader(Dataset("criteo/valid"), batch_size=65536, shuffle="none"),
        )
        learn = Learner(dls, TabularModel(sizes, 13, 2, [512, 256]), CrossEntropyLoss())
        learn.fit_one_cycle(1, 1e-2)

    Args:
        valid: Loaders of validation data, best with `shuffle="none"`.
        target_dtype: `torch.long` for classes (cross entropy over two logits), `torch.float32` for
            one logit.
        path: The learner's folder of models, as for `DataLoaders`.

    Raises:
        SpecError: A dataset has list columns or a weight, which fastai's models and losses do not
            support, or no target.
    """
    for loader in (train, *valid):
        _refuse_unsupported_columns(loader.dataset)
    item = TabularItem(target_dtype)
    loaders = [LoaderDL(loader.map(item), bs=None) for loader in (train, *valid)]
    return DataLoaders(*loaders, path=path, device=train.device or torch.device("cpu"))


class LoaderDL(DataLoader):  # type: ignore[misc]
    """fastai's `DataLoader` over a loader whose items are `(ids, numbers, target)`.

    If an epoch is left early, fastai keeps its iterator. This class drops the iterator, which ends
    the loader's threads.
    """

    n_inp = 2

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from super().__iter__()
        finally:
            self.__dict__.pop("it", None)

    def one_batch(self) -> Any:
        """Return the first batch of the first epoch, on fastai's device.

        The loader's position does not change.
        """
        batch = self.do_batch(self.dataset.sample_batch())
        return self.after_batch(batch if self.device is None else to_device(batch, self.device))


@dataclass(frozen=True)
class TabularItem:
    """Turns a batch into `TabularModel`'s inputs and a target.

    They are `(ids [rows, columns] int32, numbers [rows, columns] float32, target)`. The target is
    `[rows]`, or `[rows, targets]` for several targets, of `target_dtype`. Ids and numbers are not
    copied.
    """

    target_dtype: torch.dtype

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        ids, numbers, target = as_tuple(batch)
        assert target is not None
        return ids, numbers, target.to(self.target_dtype)


def _refuse_unsupported_columns(dataset: Dataset) -> None:
    columns = dataset.columns
    named = [f"list column {c.name}" for c in columns if c.is_list]
    named += [f"weight {c.name}" for c in columns if c.is_weight]
    if named:
        raise SpecError(
            f"fastai's tabular models and losses do not support: {', '.join(named)}",
            hint="Leave them out: Dataset(paths, schema.remove([...])).",
        )
    if not any(c.kind == "label" for c in columns):
        raise SpecError(
            "fastai's Learner needs a target, but this dataset reads none",
            hint="Create the Dataset with need_label=True.",
        )
