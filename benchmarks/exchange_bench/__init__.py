"""What `benchmarks/exchange.py` is made of."""
