"""Exports: folders that score without distrain, of ids or of raw rows, and deltas between them."""
