"""Checkpoints and models of a training: when, what, and what can be resumed."""
