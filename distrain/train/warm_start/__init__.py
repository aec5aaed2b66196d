"""Warm start: a new run takes its first weights from another run, as far as they fit.

The position in the data is not taken over: the run begins at its first step. Optimizer state is
taken over if requested.
"""
