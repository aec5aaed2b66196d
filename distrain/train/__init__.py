"""The training of one rank: set-up, steps, evaluation, checkpoints, reports. Knows no Dask."""
