"""The Training page in Dask's dashboard."""
