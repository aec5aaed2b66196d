"""Modules of `benchmarks/loader.py`."""
