"""The parts of `benchmarks/etl.py`."""
