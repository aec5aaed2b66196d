"""Modules of `benchmarks/retrieval.py`."""
