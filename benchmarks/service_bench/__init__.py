"""Modules of `benchmarks/service.py`."""
