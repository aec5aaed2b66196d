"""Starts or connects to Dask workers, and runs a rank process on each."""
