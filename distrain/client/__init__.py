"""Submits, follows and cancels jobs of a service over HTTP; needs no torch, no Dask."""

__all__: list[str] = []
