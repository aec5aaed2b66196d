"""Modules of `benchmarks/exchange.py`."""
