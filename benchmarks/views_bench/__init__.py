"""The parts of `benchmarks/views.py`."""
