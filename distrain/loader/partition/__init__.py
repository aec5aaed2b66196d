"""Decides from parquet footers which rows each rank trains on at each step of an epoch."""
