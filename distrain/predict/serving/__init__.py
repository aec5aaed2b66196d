"""Exports models that score ids or raw rows without distrain, and makes deltas between exports."""
