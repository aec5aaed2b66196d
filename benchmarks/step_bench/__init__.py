"""Modules of `benchmarks/step.py`."""
