"""What `benchmarks/loader.py` is made of."""
