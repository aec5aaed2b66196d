"""Checks and measures machines and clusters: `doctor` and `bench`."""
