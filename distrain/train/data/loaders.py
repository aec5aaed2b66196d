"""A job's loaders, as its spec says."""

from inspect import signature
from typing import Any

import torch

from distrain.jobs.assignment import World
from distrain.jobs.spec.data import DataSpec
from distrain.jobs.spec.job import JobSpec
from distrain.loader.dataset import Dataset
from distrain.loader.loader import Loader
from distrain.loader.partition.table import Table
from distrain.schema.schema import Schema

# What the loader takes as the section has it; lengths of lists are the schema's (`read_inputs`).
_OF_THE_SECTION = sorted(
    (DataSpec.model_fields.keys() & signature(Loader).parameters.keys())
    - {"shuffle", "drop_last", "shuffle_dir", "max_list_length"}
)


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
    section: dict[str, Any] = {name: getattr(data, name) for name in _OF_THE_SECTION}
    dataset = Dataset.of(
        table,
        schema,
        part_size=data.part_size,
        fill_null_id=data.fill_null_id,
        fill_null_value=data.fill_null_value,
        workflow=data.workflow,
    )
    return Loader(
        dataset,
        global_batch_size=train.batch_rows,
        shuffle=shuffle,
        seed=train.seed,
        lanes=train.lanes,
        rank=world.rank,
        num_ranks=world.num_ranks,
        device=device if device.type == "cuda" else None,
        drop_last=data.drop_last and shuffle != "none",
        cache=data.cache_dir,
        shuffle_dir=data.shuffle_dir if shuffle == "full" else None,
        **section,
    )
