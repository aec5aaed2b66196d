"""Other loaders, each set up for speed as its documentation suggests."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.loader_bench.measure import BATCH_ROWS, Pass, touch

WORKERS = 2
ITEM_BATCHES = 4
MERLIN_PART_SIZE = (
    "24MB"  # two row groups; none, 12, 64 and 200 MB, and four parts a chunk, were slower
)
MERLIN_PARTS_PER_CHUNK = 1
IDS = [f"C{number}" for number in range(1, 27)]
VALUES = [f"I{number}" for number in range(1, 14)]


def torch_items(data: Path) -> Pass:
    """Run `DataLoader` over tensors in memory, shuffled, item by item, as in torch's tutorials.

    It reads only the rows of the first four batches: the rate is steady, and all rows take minutes.
    """
    from torch.utils.data import DataLoader

    rows = tensors_in_memory(data, ITEM_BATCHES * BATCH_ROWS)

    def batches(number: int) -> Iterator[int]:
        for batch in DataLoader(rows, BATCH_ROWS, shuffle=True, num_workers=0):
            touch(*batch)
            yield len(batch[0])

    return batches


def torch_batched(data: Path) -> Pass:
    """Run `DataLoader` over tensors in memory in whole shuffled batches; nothing is decoded."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    rows = tensors_in_memory(data)
    sampler = BatchSampler(RandomSampler(rows), BATCH_ROWS, drop_last=False)

    def batches(number: int) -> Iterator[int]:
        for batch in DataLoader(rows, sampler=sampler, batch_size=None):
            touch(*batch)
            yield len(batch[0])

    return batches


def torch_iterable(data: Path) -> Pass:
    """Run an `IterableDataset` over pyarrow's batches in worker processes.

    Files are distributed to the workers in shuffled order, and rows are shuffled within a batch.
    """
    import numpy as np
    import pyarrow.parquet as pq
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    paths = sorted((data / "ordinary").iterdir())

    class Rows(IterableDataset):  # type: ignore[type-arg]
        def __init__(self, seed: int):
            self.seed = seed

        def __iter__(self) -> Iterator[Any]:
            worker: Any = get_worker_info()
            mine = random.Random(self.seed).sample(paths, len(paths))[worker.id :: WORKERS]
            generator = np.random.default_rng((self.seed, worker.id))
            for path in mine:
                with pq.ParquetFile(path) as file:
                    for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                        yield self.tensors(batch, generator.permutation(len(batch)))

        def tensors(self, batch: Any, order: Any) -> Any:
            columns = {name: batch[name].to_numpy()[order] for name in (*IDS, *VALUES, "label")}
            return (
                torch.from_numpy(np.stack([columns[name] for name in IDS])),
                torch.from_numpy(np.stack([columns[name] for name in VALUES])),
                torch.from_numpy(columns["label"]),
            )

    def batches(number: int) -> Iterator[int]:
        for batch in DataLoader(Rows(number), batch_size=None, num_workers=WORKERS):
            touch(*batch)
            yield len(batch[-1])

    return batches


def merlin(data: Path) -> Pass:
    """Run merlin-dataloader 23.8 on the CPU, shuffled, with the best of the settings tried."""
    from merlin.dataloader.torch import Loader
    from merlin.io import Dataset
    from merlin.schema import (
        ColumnSchema,
        Schema,
        Tags,
    )

    columns = [ColumnSchema("label", tags=[Tags.TARGET], dtype="float32")]
    columns += [ColumnSchema(name, tags=[Tags.CONTINUOUS], dtype="float32") for name in VALUES]
    columns += [ColumnSchema(name, tags=[Tags.CATEGORICAL], dtype="int32") for name in IDS]
    dataset = Dataset(
        [str(path) for path in sorted((data / "ordinary").iterdir())],
        engine="parquet",
        cpu=True,
        schema=Schema(columns),
        part_size=MERLIN_PART_SIZE,
    )
    loader = Loader(
        dataset,
        batch_size=BATCH_ROWS,
        shuffle=True,
        device="cpu",
        parts_per_chunk=MERLIN_PARTS_PER_CHUNK,
    )

    def batches(number: int) -> Iterator[int]:
        for features, label in loader:
            touch(*features.values(), label)
            yield len(label)

    return batches


def hugging_face(data: Path) -> Pass:
    """Run Hugging Face `datasets`, streaming Arrow batches as tensors; not shuffled."""
    import torch
    from datasets import load_dataset

    files = [str(path) for path in sorted((data / "ordinary").iterdir())]
    rows = load_dataset("parquet", data_files=files, split="train", streaming=True)
    rows = rows.with_format("arrow")

    def batches(number: int) -> Iterator[int]:
        for table in rows.iter(BATCH_ROWS):
            columns = [torch.from_numpy(table[name].to_numpy()) for name in table.column_names]
            touch(*columns)
            yield table.num_rows

    return batches


def tensors_in_memory(data: Path, most_rows: int | None = None) -> Any:
    """Return a `TensorDataset` of ids `[rows, 26]`, values `[rows, 13]` and labels `[rows]`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    torch.set_num_threads(WORKERS)
    paths, tables, missing = sorted((data / "ordinary").iterdir()), [], most_rows or sys.maxsize
    while paths and missing > 0:
        tables.append(pq.read_table(paths.pop(0)).slice(0, missing))
        missing -= tables[-1].num_rows
    table = pa.concat_tables(tables)
    blocks = [np.stack([table[name].to_numpy() for name in group], 1) for group in (IDS, VALUES)]
    label = table["label"].to_numpy()
    return torch.utils.data.TensorDataset(*(torch.from_numpy(b) for b in (*blocks, label)))
