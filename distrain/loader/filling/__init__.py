"""Decides which row goes to which place of which batch, and writes it there."""
