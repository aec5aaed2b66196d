"""Benchmarks; each module runs as a script, and the folders hold what the scripts are made of."""
