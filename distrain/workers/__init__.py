"""Where Dask workers come from, and the rank process that each of them runs."""
