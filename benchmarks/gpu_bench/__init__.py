"""Modules of `benchmarks/gpu.py`."""
