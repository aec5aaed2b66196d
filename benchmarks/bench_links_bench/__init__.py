"""Clusters with planted faults, for bench_links.py."""
