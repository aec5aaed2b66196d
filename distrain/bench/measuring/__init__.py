"""What a bench measures on a cluster's workers, through Dask."""

from distrain.bench.measuring.collectives import measure_collectives as measure_collectives
from distrain.bench.measuring.hosts import (
    measure_host_memory as measure_host_memory,
    take_inventory as take_inventory,
)
from distrain.bench.measuring.loading import (
    measure_loaders as measure_loaders,
    write_rows as write_rows,
)
from distrain.bench.measuring.programs import measure_gpus as measure_gpus
from distrain.bench.measuring.sizes import (
    FULL as FULL,
    MOST_PAIRED_NODES as MOST_PAIRED_NODES,
    QUICK as QUICK,
    Sizes as Sizes,
)
from distrain.bench.measuring.steps import (
    job_spec as job_spec,
    measure_step as measure_step,
    measure_steps as measure_steps,
)
from distrain.bench.measuring.storage import measure_storage as measure_storage
