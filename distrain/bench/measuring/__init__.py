"""What a bench measures on a cluster's workers, through Dask."""

from distrain.bench.measuring.collectives import measure_collectives
from distrain.bench.measuring.host_memory import measure_host_memory
from distrain.bench.measuring.inventory import take_inventory
from distrain.bench.measuring.loading import LOADER_THREADS, measure_loaders, write_rows
from distrain.bench.measuring.sizes import FULL, MOST_PAIRED_NODES, QUICK, Sizes
from distrain.bench.measuring.steps import job_spec, measure_step_of_all, measure_steps
from distrain.bench.measuring.storage import measure_storage

__all__ = [
    "FULL",
    "LOADER_THREADS",
    "MOST_PAIRED_NODES",
    "QUICK",
    "Sizes",
    "job_spec",
    "measure_collectives",
    "measure_host_memory",
    "measure_loaders",
    "measure_step_of_all",
    "measure_steps",
    "measure_storage",
    "take_inventory",
    "write_rows",
]
