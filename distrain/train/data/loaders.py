"""Creates the loaders of a job from its spec."""

import os
from typing import Literal

import torch

from distrain.jobs.assignment import World
from distrain.jobs.spec.data import LoadingSpec
from distrain.jobs.spec.job import JobSpec
from distrain.loader.dataset import Dataset
from distrain.loader.loader import Loader
from distrain.loader.options import LoaderOptions
from distrain.loader.partition.table import Table
from distrain.schema.schema import Schema


def job_loader(
    spec: JobSpec,
    schema: Schema,
    table: Table,
    world: World,
    device: torch.device,
    *,
    shuffle: str,
) -> Loader:
    """Return a rank's loader of a job's training or validation rows, without starting it.

    Args:
        shuffle: `data.shuffle` for training, `none` for validation. With `none`, `data.drop_last`
            is ignored, so that all rows are read.
    """
    data, train = spec.data, spec.train
    section = {name: getattr(data, name) for name in LoadingSpec.model_fields}
    section |= {
        "decode_threads": decode_threads(
            data.decode_threads, device.type, _usable_cores(world.ranks_per_node)
        ),
        "shuffle": shuffle,
        "drop_last": data.drop_last and shuffle != "none",
        "max_list_length": {},  # already in the schema (`read_inputs`)
    }
    options = LoaderOptions(
        **section,
        global_batch_size=train.batch_rows,
        seed=train.seed,
        lanes=train.lanes,
        rank=world.rank,
        num_ranks=world.num_ranks,
    )
    dataset = Dataset.of(table, schema, data)
    return Loader.of(dataset, options, device if device.type == "cuda" else None)


_MOST_THREADS = 10
"""On an H200 with 16 cores, 13 threads gave no more rows per second than 10."""

_OTHER_THREADS = 2
"""The thread that trains, and the thread that copies batches to the GPU."""


def decode_threads(wanted: int | Literal["auto"], device_type: str, cores: int) -> int:
    """Return `wanted`, the number of decoding threads of a rank; choose a number for "auto".

    On a CPU it is 1. On a GPU it is `cores`, the rank's number of cores, minus 2, from 1 to 10.

    >>> decode_threads("auto", "cpu", 16), decode_threads(3, "cuda", 16)
    (1, 3)
    >>> [decode_threads("auto", "cuda", cores) for cores in (1, 4, 16)]
    [1, 2, 10]
    """
    if wanted != "auto":
        return wanted
    if device_type != "cuda":  # the model needs the cores
        return 1
    return max(1, min(_MOST_THREADS, cores - _OTHER_THREADS))


def _usable_cores(ranks_on_host: int) -> int:
    """Return this rank's share of the host's cores, at most the cores on which it may run."""
    if not hasattr(os, "sched_getaffinity"):
        return max(1, (os.cpu_count() or 1) // ranks_on_host)
    own = len(os.sched_getaffinity(0))
    try:
        all_cores = len(os.sched_getaffinity(1))
    except OSError:  # SELinux, seccomp and some emulated kernels refuse other processes
        all_cores = os.cpu_count() or own
    return min(own, max(1, all_cores // ranks_on_host))
