"""What `benchmarks/step.py` is made of."""
