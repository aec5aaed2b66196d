"""Modules of `benchmarks/quality.py`."""
