"""Modules of `benchmarks/end_to_end.py`."""
