"""Warm start: a new run begins with the weights of another run, as far as they fit.

The optimizer state is copied if requested. The new run begins at its first step and with its first
rows.
"""
