"""Parts of `benchmarks/service.py`."""
