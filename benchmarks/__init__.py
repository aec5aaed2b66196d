"""Benchmark scripts; the folders hold their modules."""
