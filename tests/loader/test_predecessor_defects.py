"""Defects of the loader that this one follows (merlin-dataloader 23.8), tested nowhere else."""

import threading
from typing import Any

import pytest

from distrain.loader import Dataset, Loader
from distrain.loader.backends import CpuBackend
from distrain.loader.batch import Batch
from distrain.schema import Schema

SIZES = [[20] * 6, [20] * 4]
ROWS = 200


@pytest.fixture
def dataset(write_table: Any, schema: Schema) -> Dataset:
    return Dataset(write_table(SIZES), schema)


def rows(batches: Any) -> list[int]:
    return [row for batch in batches for row in batch["C3"].tolist()]


def test_5_conversion_runs_outside_the_training_thread(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, columns became tensors in the thread that trains."""
    threads: dict[str, set[int]] = {"load": set(), "finish": set(), "transform": set()}
    load, finish = CpuBackend.load, CpuBackend.finish

    def noting_load(*arguments: Any) -> None:
        threads["load"].add(threading.get_ident())
        load(*arguments)

    def noting_finish(*arguments: Any) -> Batch:
        threads["finish"].add(threading.get_ident())
        return finish(*arguments)

    def transform(batch: Batch) -> Batch:
        threads["transform"].add(threading.get_ident())
        return batch

    monkeypatch.setattr(CpuBackend, "load", noting_load)
    monkeypatch.setattr(CpuBackend, "finish", noting_finish)
    assert len(rows(Loader(dataset, batch_size=20, transforms=[transform]))) == ROWS
    assert all(threads.values())
    assert threading.get_ident() not in set.union(*threads.values())
