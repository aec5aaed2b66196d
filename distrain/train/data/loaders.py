"""A job's loaders, as its spec says."""

import torch

from distrain.loader import Dataset, Loader
from distrain.partition import Table
from distrain.schema import Schema
from distrain.spec import JobSpec
from distrain.world import World


def job_loader(
    spec: JobSpec,
    schema: Schema,
    table: Table,
    world: World,
    device: torch.device,
    *,
    shuffle: str,
) -> Loader:
    """A rank's loader of a job's training or validation rows; it starts nothing.

    Args:
        shuffle: `data.shuffle` to train; `none` to validate, which leaves out no row.
    """
    data, train = spec.data, spec.train
    dataset = Dataset.of(
        table,
        schema,
        part_size=data.part_size,
        fill_null_id=data.fill_null_id,
        fill_null_value=data.fill_null_value,
    )
    return Loader(
        dataset,
        global_batch_size=train.global_batch_size,
        shuffle=shuffle,
        seed=train.seed,
        lanes=train.lanes,
        rank=world.rank,
        num_ranks=world.num_ranks,
        device=device if device.type == "cuda" else None,
        drop_last=data.drop_last and shuffle != "none",
        parts_per_chunk=data.parts_per_chunk,
        prefetch_batches=data.prefetch_batches,
        decode_threads=data.decode_threads,
        reader=data.reader,
        gpu_memory_fraction=data.gpu_memory_fraction,
        cache=data.cache_dir,
        cache_size=data.cache_size,
        retry_s=data.retry_s,
        shuffle_dir=data.shuffle_dir if shuffle == "full" else None,
    )
