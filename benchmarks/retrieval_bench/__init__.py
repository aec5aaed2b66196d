"""What `benchmarks/quality.py` is made of."""
