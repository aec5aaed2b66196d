"""Creates a job's loaders by its spec."""

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
        shuffle: `data.shuffle` to train; `none` to validate, which keeps all rows.
    """
    data, train, is_full = spec.data, spec.train, shuffle == "full"
    section = {name: getattr(data, name) for name in LoadingSpec.model_fields}
    section |= {
        "shuffle": shuffle,
        "drop_last": data.drop_last and shuffle != "none",
        "shuffle_dir": data.shuffle_dir if is_full else None,
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
