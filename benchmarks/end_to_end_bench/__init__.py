"""What `benchmarks/end_to_end.py` is made of."""
