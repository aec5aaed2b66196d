"""Turns parquet footers into lanes: which rows each rank trains on at each step of an epoch."""
