"""Modules of `benchmarks/etl.py`."""
