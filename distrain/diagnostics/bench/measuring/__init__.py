"""Measures a cluster's workers through Dask."""
