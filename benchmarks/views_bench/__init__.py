"""Modules of `benchmarks/views.py`."""
